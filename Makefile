# `make` alone says what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run test check deny advisories e2e n8n crash bench pictures setup images clean

# For the engines that tests start themselves and their certificates, for their clients, and for the page: a browser, letters
# for it, and what makes its pictures small.
FOR_TESTS := iproute2 openssl python3-venv chromium fonts-inter fonts-jetbrains-mono pngquant

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: images ## set the host up, build, start the daemon, and show it at work; Ctrl-C stops it
	cargo build --locked --release
	deploy/first-run

test: images ## every test: the runner images' promises, then the workspace's against a real engine
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	runner-images/check
	cargo test --locked --workspace

check: deny ## formatting, clippy and rustdoc, warnings refused, and what the dependencies are
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --workspace

deny: ## the crates of Cargo.lock: their licences, where they come from, which are banned (deny.toml)
	.ci/deny

advisories: ## the crates of Cargo.lock against the known vulnerabilities, fetched from github.com/RustSec
	.ci/deny advisories

e2e: images ## only the tests that drive the daemon as its clients do
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	cargo test --locked --package paddock-daemon --test '*'

n8n: images ## a real n8n, installed (2 GB, ten minutes), imports and runs what deploy/n8n has
	deploy/setup $(FOR_TESTS) g++
	tests/clients/install
	tests/clients/install-n8n
	cargo test --package paddock-daemon --test e2e n8n:: -- --ignored --nocapture --test-threads=1

crash: images ## the daemon killed 200 times under load, and an engine 40 times; CRASH_KILLS, ENGINE_ENDS, CRASH_SEED
	deploy/setup iproute2
	CRASH_KILLS=$${CRASH_KILLS:-200} ENGINE_ENDS=$${ENGINE_ENDS:-40} \
		cargo test --locked --package paddock-daemon --test e2e crash:: -- --nocapture --test-threads=1

bench: images ## how long things take, against a real engine and other programs that do the same
	deploy/setup bubblewrap socat ripgrep python3-venv # for the peers that it measures beside ours
	bench/peers/install
	cargo bench --locked --bench paddock

pictures: images ## the page's pictures in deploy/pictures, taken again
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	PADDOCK_PICTURES=$(CURDIR)/deploy/pictures cargo test --locked --package paddock-daemon --test e2e page::pictures

setup: ## what the host needs, a Docker Engine included, installed or started if missing
	deploy/setup

images: setup ## the runner images, those that are missing or have changed
	deploy/images

clean: ## remove what building and running left in this folder; the images, the engine and the store stay
	cargo clean
	rm -rf run/first-run run/store run/build-*.log tests/clients/venv tests/clients/venv-1 tests/clients/node_modules \
		tests/clients/n8n tests/clients/prometheus bench/peers/venv src/daemon/src/api/page/editor/node_modules
