# The one entry point: `make help` lists everything.

SHELL := /bin/bash
CARGO ?= cargo
BIN := bin
DATA ?= $(HOME)/.minik8s
PORT ?= 6443
PROGRAMS := apiserver
TARGET := x86_64-unknown-linux-gnu
RELEASE := --release --target $(TARGET)
STATIC := RUSTFLAGS="-C target-feature=+crt-static"

.DEFAULT_GOAL := help
.PHONY: help build test bench soak up down lint fuzz packages test-packages

help: ## list what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: packages ## build the programs, static, into bin/
	$(STATIC) $(CARGO) build $(RELEASE) $(PROGRAMS:%=-p %-cmd)
	@mkdir -p $(BIN)
	@for p in $(PROGRAMS); do install -m 755 target/$(TARGET)/release/$$p $(BIN)/$$p; done
	@ls -lh $(PROGRAMS:%=$(BIN)/%) | awk '{ print "  " $$9 "  " $$5 }'

test: test-packages ## install what the tests need and run them all
	scripts/test

lint: ## rustfmt and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: build test-packages ## print the table of benchmarks (PEER=kubeconfig measures a peer beside us, QUICK=1 less)
	$(STATIC) $(CARGO) run $(RELEASE) -p bench -- --apiserver $(BIN)/apiserver \
		$(if $(QUICK),--quick) $(if $(PEER),--peer-kubeconfig $(PEER)) $(if $(PEER_PID),--peer-pid $(PEER_PID))
	$(STATIC) $(CARGO) run $(RELEASE) -p scheduler --example bench -- $(if $(QUICK),--quick)

soak: test-packages ## the long versions of the tests that look for rare faults
	SOAK=1 scripts/test

up: build ## start an apiserver here and show it in use
	scripts/up $(DATA) $(PORT)

down: ## stop it and remove its data
	scripts/down $(DATA)

fuzz: ## fuzz decoding, selectors and patches for a minute each (needs a nightly toolchain and cargo-fuzz)
	@for t in $$(cd fuzz && $(CARGO) +nightly fuzz list); do (cd fuzz && $(CARGO) +nightly fuzz run $$t -- -max_total_time=60) || exit 1; done

packages:
	@scripts/packages build

test-packages:
	@scripts/packages test
