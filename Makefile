# The one entry point: `make help` lists everything.

SHELL := /bin/bash
CARGO ?= cargo
BIN := bin
PROGRAMS := containerd-shim-minik8s-v1 apiserver controller-manager interlink knative kubeadm kubectl kubelet kubeproxy scheduler
# By these names upstream's kubectl finds our commands.
PLUGINS := kubectl-register kubectl-trigger kubectl-update kubectl-workflow
TARGET := x86_64-unknown-linux-gnu
RELEASE := --release --target $(TARGET)
# Paths of this machine are not written into the program: whoever builds it gets the same bytes.
CARGO_HOME ?= $(HOME)/.cargo
STATIC := RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/minik8s"

.DEFAULT_GOAL := help
.PHONY: help build test check bench soak up down memory lint fuzz package packages test-packages audit

help: ## list what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Linked to a fixed place in memory: a program that can be moved writes to a page for every pointer when it starts, in
# each of its processes.
build: packages ## build the programs, static, into bin/
	$(STATIC) $(CARGO) rustc $(RELEASE) -p minik8s-cmd --bin minik8s -- -C relocation-model=static
	@mkdir -p $(BIN)
	@install -m 755 target/$(TARGET)/release/minik8s $(BIN)/minik8s
	@for p in $(PROGRAMS) $(PLUGINS); do ln -sf minik8s $(BIN)/$$p; done
	@echo "  $(BIN)/minik8s ($$(du -h --apparent-size $(BIN)/minik8s | cut -f1)), called as: $(PROGRAMS)"

test: test-packages ## install what the tests need and run them all
	scripts/test

lint: ## rustfmt and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

check: test-packages ## what a change needs before a commit: the crates that have changed (SINCE=commit: since then)
	scripts/check $(SINCE)

bench: build test-packages ## print the tables of benchmarks (QUICK=1 less; PEER=kubeconfig, PEER_KUBELET=, PEER_KUBEPROXY=program measure peers)
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver \
		$(if $(QUICK),--quick) $(if $(PEER),--peer-kubeconfig $(PEER)) $(if $(PEER_PID),--peer-pid $(PEER_PID))
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver $(if $(QUICK),--quick) hostile
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver $(if $(QUICK),--quick) fanout
	$(STATIC) $(CARGO) run $(RELEASE) -p scheduler --example schedule -- $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p controllers --example converge -- $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p kubelet --example node -- $(BIN)/kubelet --shim $(BIN)/containerd-shim-minik8s-v1 \
		$(if $(QUICK),--quick) $(if $(PEER_KUBELET),--peer $(PEER_KUBELET))
	$(STATIC) $(CARGO) run $(RELEASE) -p interlink --example requests -- $(BIN)/minik8s $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p proxy --example rules -- $(BIN)/kubeproxy \
		$(if $(QUICK),--services 1000 --changes 5) $(if $(PEER_KUBEPROXY),--peer $(PEER_KUBEPROXY))
	$(STATIC) $(CARGO) run $(RELEASE) -p functions --example calls -- $(BIN)/minik8s $(if $(QUICK),--quick)
	$(STATIC) $(CARGO) run $(RELEASE) -p functions --example workflows -- $(if $(QUICK),--quick)

soak: test-packages ## the long versions of the tests that look for rare faults
	SOAK=1 scripts/test

package: build ## make a Debian package and a static tarball, in target/packages/
	scripts/package $(BIN)/minik8s target/packages

up: build ## make a one-machine cluster of this machine, and show a demo answering
	scripts/up

down: ## take the cluster away again
	scripts/down

memory: ## show what the processes of the cluster on this machine take of its memory
	scripts/memory

fuzz: ## fuzz what strangers can send, and what is made of it, for a minute each (needs a nightly toolchain and cargo-fuzz)
	@for t in $$(cd fuzz && $(CARGO) +nightly fuzz list); do (cd fuzz && $(CARGO) +nightly fuzz run --sanitizer none $$t -- -max_total_time=60) || exit 1; done

audit: ## look for known advisories of the dependencies (needs cargo-deny; ADVISORIES=folder: a clone of the database)
	@scripts/audit

packages:
	@scripts/packages build

test-packages:
	@scripts/packages test
