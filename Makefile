# `make` alone lists the commands.
.DEFAULT_GOAL := help
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run up down test prepare check deny advisories e2e elsewhere gvisor n8n registries crash fuzz bench \
	pictures setup images simulate machines deployments agents image dist clean soak

# Packages for the tests: for the engines that they start and their certificates, for their clients, for the servers that
# programs reach in network namespaces, and for the page a browser, its fonts, and a program that makes its pictures small.
FOR_TESTS := iproute2 openssl python3-venv iptables git openssh-server openssh-client postgresql \
	e2fsprogs chromium fonts-inter fonts-jetbrains-mono pngquant docker-compose systemd runsc rootlesskit uidmap

# Tests at one time: many of them wait for something most of the time.
MORE_TESTS := RUST_TEST_THREADS=$(shell echo $$(($$(nproc) * 3 / 2)))

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: images ## prepare the host, build, start the daemon and demonstrate it; Ctrl-C stops it
	deploy/build >/dev/null
	deploy/first-run

up: setup ## start paddock, Prometheus and Grafana in containers (deploy/up); WITH="n8n socket-proxy" for more
	deploy/up $(WITH)

down: ## stop what `make up` started; files and images stay
	deploy/up --down

test: prepare ## all tests: the contract of the runner images, unit tests, and end-to-end tests with a real engine
	runner-images/check python typescript sh claude-code opencode
	deploy/build >/dev/null
	$(MORE_TESTS) cargo test --locked --workspace

prepare: agents ## what the tests need beside a build: packages, images, clients, servers
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	tests/shared-store/install

check: deny ## format, clippy and rustdoc without warnings, and the dependencies (make deny)
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --workspace

deny: ## licences, sources and banned crates of Cargo.lock (deny.toml)
	.ci/deny

advisories: ## known vulnerabilities of the crates in Cargo.lock, fetched from github.com/RustSec
	.ci/deny advisories

e2e: prepare ## only the tests that use the daemon like a client
	deploy/build >/dev/null
	$(MORE_TESTS) cargo test --locked --package paddock-daemon --test '*'

elsewhere: images ## a newer Docker, Compose 2, a registry, systemd, aarch64: each in a root of its own (half an hour)
	deploy/setup $(FOR_TESTS) mmdebstrap systemd-container
	tests/clients/install
	tests/elsewhere/run

gvisor: images ## the hostile programs and calls again, in containers of gVisor (ten minutes)
	deploy/setup $(FOR_TESTS)
	cargo test --locked --package paddock-daemon --test e2e gvisor:: -- --ignored --nocapture --test-threads=1

n8n: images ## install a real n8n (2 GB, ten minutes), and import and run the workflows of deploy/n8n
	deploy/setup $(FOR_TESTS) g++
	tests/clients/install
	tests/clients/install-n8n
	cargo test --package paddock-daemon --test e2e n8n:: -- --ignored --nocapture --test-threads=1

registries: images ## install from the real PyPI and npm in containers, in mode restricted; needs the internet
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	cargo test --locked --package paddock-daemon --test e2e registries:: -- --ignored --nocapture --test-threads=1

crash: images ## kill the daemon 200 times under load, and an engine 40 times; CRASH_KILLS, ENGINE_ENDS, CRASH_SEED
	deploy/setup iproute2
	CRASH_KILLS=$${CRASH_KILLS:-200} ENGINE_ENDS=$${ENGINE_ENDS:-40} \
		cargo test --locked --package paddock-daemon --test e2e crash:: -- --nocapture --test-threads=1

soak: images ## all faults at random under a mixed load, compared with a model; HOURS=1 or MINUTES, SOAK_SEED; bench/soak.md
	deploy/setup iproute2 e2fsprogs
	SOAK_MINUTES=$${MINUTES:-$$((60 * $${HOURS:-1}))} SOAK_REPORT=$(CURDIR)/bench/soak.md PADDOCK_TEST_DAEMON=$$(deploy/build) \
		cargo test --locked --package paddock-daemon --test e2e crash::soak -- --nocapture --test-threads=1

fuzz: ## fuzz each parser, guided by its branches; FUZZ_SECONDS for each, FUZZ_SEED, TARGET=tar for only one
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} CARGO_TARGET_DIR=$(CURDIR)/target/fuzz RUSTFLAGS="-Cpasses=sancov-module \
			-Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters" \
		cargo test --locked --profile fuzz --target "$$(rustc -vV | sed -n 's/^host: //p')" --package paddock-proto \
			--package paddock-daemon --lib "fuzz_$$TARGET" -- --nocapture --test-threads=1

simulate: ## simulate many daemons with faults: PADDOCK_SEEDS worlds, or the one of PADDOCK_SEED; and figures
	PADDOCK_SEEDS=$${PADDOCK_SEEDS:-10000} cargo test --locked --package paddock-cluster --test simulate -- \
		--include-ignored --nocapture --test-threads=1

machines: images ## what a run costs the host over 1, 3 and 8 engines, each on a machine of its own (ten minutes)
	deploy/setup $(FOR_TESTS)
	tests/shared-store/install
	PADDOCK_TEST_DAEMON=$$(deploy/build) cargo test --locked --package paddock-daemon --test e2e machines:: -- \
		--include-ignored --nocapture --test-threads=1

deployments: setup ## whether the files for Swarm, Kubernetes and Nomad are what those take; needs kubectl
	python3 -m venv target/deployments
	target/deployments/bin/pip install --quiet kubernetes-validate==1.37.0 PyYAML python-hcl2==8.1.4
	target/deployments/bin/python tests/deployments/check.py

bench: agents ## measure how long things take, with a real engine and beside similar programs
	deploy/setup bubblewrap socat ripgrep python3-venv nodejs npm # for the peers that it measures beside ours
	bench/peers/install
	cargo bench --locked --bench paddock

pictures: images ## take the pictures of the page and the recording of a terminal in deploy/pictures again
	deploy/setup $(FOR_TESTS)
	tests/clients/install
	PADDOCK_PICTURES=$(CURDIR)/deploy/pictures cargo test --locked --package paddock-daemon --test e2e page::pictures
	deploy/build >/dev/null
	deploy/pictures/record

setup: ## install or start everything that the host needs, a Docker Engine included
	deploy/setup

images: setup ## build the runner images that are missing or have changed
	deploy/images

agents: setup ## build the images of coding agents too, which are large (two minutes)
	deploy/images agents

image: setup ## the image of the daemon: paddock:latest and paddock:VERSION
	deploy/image

dist: setup ## the release, with its checksum: dist/paddock-VERSION-linux-ARCH.tar.gz; ARCH=aarch64 for that
	$(if $(filter aarch64,$(ARCH)),deploy/setup gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
	ARCH=$(ARCH) deploy/dist/dist

clean: ## remove the files that building and running left in this folder; images, engine and store stay
	cargo clean
	rm -rf dist run/first-run run/store run/build-*.log tests/clients/venv tests/clients/venv-1 tests/clients/node_modules \
		tests/clients/n8n tests/clients/prometheus bench/peers/venv bench/peers/node_modules src/daemon/src/api/page/editor/node_modules
