# The one entry point: `make help` lists everything.

SHELL := /bin/bash
CARGO ?= cargo
BIN := bin
PROGRAMS := apiserver controller-manager knative kubeadm kubectl kubelet kubeproxy scheduler
TARGET := x86_64-unknown-linux-gnu
RELEASE := --release --target $(TARGET)
STATIC := RUSTFLAGS="-C target-feature=+crt-static"

.DEFAULT_GOAL := help
.PHONY: help build test bench soak up down memory lint fuzz packages test-packages

help: ## list what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Linked to a fixed place in memory: a program that can be moved writes to a page for every pointer when it starts, in
# each of its processes.
build: packages ## build the programs, static, into bin/
	$(STATIC) $(CARGO) rustc $(RELEASE) -p minik8s-cmd --bin minik8s -- -C relocation-model=static
	@mkdir -p $(BIN)
	@install -m 755 target/$(TARGET)/release/minik8s $(BIN)/minik8s
	@for p in $(PROGRAMS); do ln -sf minik8s $(BIN)/$$p; done
	@echo "  $(BIN)/minik8s ($$(du -h --apparent-size $(BIN)/minik8s | cut -f1)), called as: $(PROGRAMS)"

test: test-packages ## install what the tests need and run them all
	scripts/test

lint: ## rustfmt and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: build test-packages ## print the tables of benchmarks (QUICK=1 less; PEER=kubeconfig, PEER_KUBELET=, PEER_KUBEPROXY=program measure peers)
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver \
		$(if $(QUICK),--quick) $(if $(PEER),--peer-kubeconfig $(PEER)) $(if $(PEER_PID),--peer-pid $(PEER_PID))
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver $(if $(QUICK),--quick) hostile
	$(STATIC) $(CARGO) run $(RELEASE) -p scheduler --example schedule -- $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p controllers --example converge -- $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p kubelet --example node -- $(BIN)/kubelet \
		$(if $(QUICK),--quick) $(if $(PEER_KUBELET),--peer $(PEER_KUBELET))
	$(STATIC) $(CARGO) run $(RELEASE) -p interlink --example requests -- $(BIN)/minik8s $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p proxy --example rules -- $(BIN)/kubeproxy \
		$(if $(QUICK),--services 1000 --changes 5) $(if $(PEER_KUBEPROXY),--peer $(PEER_KUBEPROXY))

soak: test-packages ## the long versions of the tests that look for rare faults
	SOAK=1 scripts/test

up: build ## make a one-machine cluster of this machine, and show a demo answering
	scripts/up

down: ## take the cluster away again
	scripts/down

memory: ## show what the processes of the cluster on this machine take of its memory
	scripts/memory

fuzz: ## fuzz paths, decoding, selectors and patches for a minute each (needs a nightly toolchain and cargo-fuzz)
	@for t in $$(cd fuzz && $(CARGO) +nightly fuzz list); do (cd fuzz && $(CARGO) +nightly fuzz run --sanitizer none $$t -- -max_total_time=60) || exit 1; done

packages:
	@scripts/packages build

test-packages:
	@scripts/packages test
