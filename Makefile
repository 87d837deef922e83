# One line a target; each calls a script or a command that can also be run by hand.
# CARGO_FLAGS goes to cargo build and cargo test, e.g. make test CARGO_FLAGS=--offline

.DEFAULT_GOAL := help
.PHONY: help demo test test-vm fuzz bench check setup build

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A key-value server under several policies: a table while it runs, then an HTML report (3 minutes after the first build)
	scripts/demo

test: ## Every test: unit, property, model checking, real clients, Python, style
	scripts/test

test-vm: ## Agents over sched_ext, in a virtual machine with a kernel that has it (part of make test)
	scripts/test-vm

fuzz: ## Every parser of what strangers write, 30 seconds each (part of make test; scripts/fuzz --help)
	scripts/fuzz

bench: ## What yield, spawn, mutex and condition variables cost beside tokio, may, Boost.Fiber and Go
	scripts/bench

check: ## Formatting, clippy and the style check: a minute, before every commit
	scripts/check

setup: ## Install the packages that a build lacks (apt)
	scripts/setup

build: ## The heddle command with RocksDB, in target/release/heddle
	scripts/build
