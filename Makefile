# Each target calls one script, which can also be run by hand.
# CARGO_FLAGS goes to cargo build and cargo test, e.g. make test CARGO_FLAGS=--offline

.DEFAULT_GOAL := help
.PHONY: help demo test test-loaded test-vm fuzz bench check setup build

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A key-value server under several policies: a live table, then an HTML report (3 minutes)
	scripts/demo

test: ## Every test: unit, property, model checking, real clients, Python, style; ends with a list of failures
	scripts/test

test-loaded: ## The same, twice, with a busy process on each CPU (not part of make test: it takes four times as long)
	scripts/test-loaded

test-vm: ## Agents over sched_ext, in a virtual machine with a kernel that has it (part of make test)
	scripts/test-vm || [ $$? -eq 77 ]

fuzz: ## Every parser of untrusted input, 30 seconds each (5 in make test; scripts/fuzz --help)
	scripts/fuzz

bench: ## The cost of yield, spawn, mutex and condition variables, beside tokio, may, Boost.Fiber and Go
	scripts/bench

check: ## Formatting, clippy and the style check: a minute, before every commit
	scripts/check

setup: ## Install the packages that a build lacks (apt)
	scripts/setup

build: ## The heddle command with RocksDB, in target/release/heddle
	scripts/build
