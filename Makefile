# The few commands of this project; `make` alone lists them.
#
# Tests and checks use the release profile, what people run and what is measured the dist profile; all use the whole
# workspace and one target directory. RocksDB (half an hour of C++) compiles once: for the second profile ccache has it.
# Do not set RUSTFLAGS, CC or CXX: each change of them compiles it again.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fencepost
export CARGO_TARGET_DIR ?= $(cache)/target

# Compilers through ccache where it is installed (a directory that does not exist is skipped, and set-up may create it
# a moment later), then our own tools, and cargo even in a shell that has not been told about it.
export PATH := /usr/lib/ccache:$(cache)/tools/bin:$(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# make run ARGS='--listen 127.0.0.1:0'        make test SUITE=crash ARGS='t10_ --nocapture'
ARGS ?=
PREFIX ?= $(HOME)/.local
SUITE ?=

# Programs as people run them. Always the whole workspace, so that libraries have one set of features.
build_dist := cargo build --locked --profile dist --workspace
dist := $(CARGO_TARGET_DIR)/dist

.PHONY: help try run install test test-quick test-full check fmt bench bench-growth bench-locks bench-instructions bench-parts s3s-e2e s3-apps audit

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

try: ## start a gateway in memory, without RocksDB: built in minutes, and it keeps nothing (ARGS='…' is passed to `fencepost serve`)
	@scripts/setup try
	cargo build --locked -p fencepost-gateway --no-default-features --bin fencepost
	@data=$$(mktemp -d) && trap 'rm -rf "$$data"' EXIT && \
		$(CARGO_TARGET_DIR)/debug/fencepost serve --engine memory --data "$$data" $(ARGS)

run: ## set up, then start a gateway on this machine (ARGS='…' is passed to `fencepost serve`)
	@scripts/setup
	$(build_dist) --bin fencepost
	$(dist)/fencepost serve $(ARGS)

install: ## build, and copy the binary to PREFIX/bin (PREFIX=~/.local by default)
	@scripts/setup
	$(build_dist) --bin fencepost
	install -D -m 755 $(dist)/fencepost $(PREFIX)/bin/fencepost

test: ## set up, then run every test at the CI budget (SUITE=name runs one suite)
	@scripts/setup test
	@FENCEPOST_BUDGET=ci scripts/test $(SUITE) $(if $(ARGS),-- $(ARGS))

test-quick: ## the same without the tests that need etcd, PostgreSQL, Redis or ZooKeeper, which are not installed either
	@scripts/setup quick
	@FENCEPOST_BUDGET=ci scripts/test --without backends --without gateways --without conform::databases --without engines::postgres --without engines::postgres_serializable

test-full: ## the same tests at the full budget: long kill storms, all seeds
	@scripts/setup test
	@FENCEPOST_BUDGET=full scripts/test $(SUITE) $(if $(ARGS),-- $(ARGS))

check: ## format, lints, docs, licences, versions, dependency direction and the client's features; changes no file
	@scripts/setup check
	cargo fmt --all --check
	cargo clippy --locked --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --release --workspace --no-deps
	cargo-deny --locked check --hide-inclusion-graph --deny unmatched-skip --deny unnecessary-skip bans licenses sources
	scripts/check-rust-version
	scripts/check-dependency-direction
	scripts/check-client-features

fmt: ## format the code
	cargo fmt --all

bench: ## measure beside Redis, PostgreSQL, etcd, bare hyper, plain files and SeaweedFS, and on PostgreSQL and etcd, then count instructions; writes docs/benchmarks.md, docs/shared-engines-benchmarks.md and docs/s3-benchmarks.md (ARGS='ROUNDS SECONDS')
	@scripts/setup bench
	$(build_dist) --bins
	$(dist)/side-by-side $(ARGS)
	$(dist)/side-by-side shared $(ARGS)
	$(dist)/side-by-side objects $(ARGS)
	$(dist)/hot-path check
	@echo 'Growth to 10 million fences, 1 MiB and 4,096 connections is measured by `make bench-growth`, a quarter of an hour.'

bench-growth: ## measure as fences, values and connections grow; writes docs/growth.md (ARGS='ROUNDS SECONDS FENCES…')
	@scripts/setup bench
	$(build_dist) --bins
	$(dist)/side-by-side growth $(ARGS)

bench-locks: ## measure each lock service with and without the gateway; writes docs/locks/benchmarks.md (ARGS='ROUNDS SECONDS')
	@scripts/setup test
	$(build_dist) --bins
	$(dist)/lock-services $(ARGS)

bench-instructions: ## count the instructions of the hot path against docs/instructions.md (ARGS=record writes it anew)
	@scripts/setup bench
	$(build_dist) --bins
	$(dist)/hot-path $(or $(ARGS),check)

bench-parts: ## Criterion benches of the parts (ARGS='…' is passed to Criterion)
	@scripts/setup
	cargo bench --locked --profile release --workspace --bench '*' -- $(ARGS)

s3s-e2e: ## run the compatibility tests of the S3 library against a gateway, and compare with docs/s3-compatibility.md
	@scripts/setup
	cargo build --locked --release --workspace --bins
	@scripts/s3s-e2e

s3-apps: ## run real S3 applications as holders and as zombies; docs/s3-applications.md has what was seen (ARGS='pyarrow restic' runs some, ARGS=record writes the tables)
	@scripts/setup apps
	cargo build --locked --release --workspace --bins
	@scripts/s3-apps $(ARGS)

audit: ## known vulnerabilities in dependencies; needs the network, so CI leaves it out
	@scripts/setup check
	cargo-deny --locked check advisories
