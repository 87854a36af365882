# What a person does here. `make help` lists it; .ci/run does it all on a bare machine.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# The functions as the demo and the end-to-end tests run them: unmodified binaries.
FUNCTIONS := -p slipway-render-function -p slipway-rollout-function -p slipway-scan-function
DENY_VERSION := 0.20.2
DENY := .tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
MUTANTS_VERSION := 27.1.0
MUTANTS := .tools/cargo-mutants-$(MUTANTS_VERSION)/bin/cargo-mutants
GUARD_VERSION := 3.2.1
GUARD := .tools/cfn-guard-$(GUARD_VERSION)/bin/cfn-guard
FUZZ_VERSION := 0.13.1
FUZZ := .tools/cargo-fuzz-$(FUZZ_VERSION)/bin/cargo-fuzz
MDBOOK_VERSION := 0.5.4
MDBOOK := .tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
MERMAID_VERSION := 0.17.1
MERMAID := .tools/mdbook-mermaid-$(MERMAID_VERSION)/bin/mdbook-mermaid
# fuzz/Cargo.toml has a program for each.
FUZZED ?= spec patch events status answers signing

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

.PHONY: demo
demo: tools ## Launch examples/production.yaml in an embedded AWS, and watch; ARGS=--keep leaves it running
	$(CARGO) build --locked --workspace --bins
	@$${CARGO_TARGET_DIR:-target}/debug/slipway-demo $(ARGS)

.PHONY: cluster
EXAMPLE ?= examples/development.yaml
cluster: tools ## An example's cluster on virtual machines, from the upload to every node Ready; root, QEMU; EXAMPLE= ARGS=--keep
	$(CARGO) build --locked --workspace --bins
	$(CARGO) build --release --locked -p slipway-node
	@tests/cluster/run.sh $${CARGO_TARGET_DIR:-target}/debug/slipway-cluster --example $(EXAMPLE) $(ARGS)

.PHONY: test
test: tools ## All tests, with all that they need, and the templates' lint
	@# What the rules of the layout look at is there for other platforms too.
	$(CARGO) fetch --locked --quiet
	@# The whole workspace each time: other selections have other features, and build the SDKs of AWS anew.
	$(CARGO) build --locked --workspace --all-targets
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --locked --workspace --no-fail-fast && $(CARGO) test --locked --workspace --doc; \
	else \
		CARGO="$(CARGO)" tests/scripts/run_tests.py; \
	fi
	tests/scripts/lint-template.sh

.PHONY: kubernetes
kubernetes: ## A real Kubernetes to test with, built once into .tools/: half an hour on one processor; JOBS= PATIENCE=
	@tests/scripts/kubernetes.sh

.PHONY: test-kubernetes
test-kubernetes: kubernetes ## What we give to controllers, in a real Kubernetes
	$(CARGO) test --locked --workspace --test kubernetes --test draining

# tests/tests/etcd/machine.rs
ETCD_NEWEST := 3.7.3

.PHONY: test-etcd
test-etcd: tools ## What we do to etcd, in the newest release too, which is built for it once into .tools/: two minutes
	@tests/scripts/etcd_release.sh $(ETCD_NEWEST) etcd >/dev/null || test $$? -eq 3
	$(CARGO) build --locked --workspace --all-targets
	$(CARGO) test --locked --workspace --test etcd

.PHONY: test-machines
test-machines: tools ## Machines that boot: three etcd members by systemd-nspawn; needs root, mmdebstrap, systemd-container
	@tests/machines/rootfs.sh >/dev/null || test $$? -eq 3
	$(CARGO) build --locked --workspace --all-targets
	@if tests/machines/rootfs.sh >/dev/null 2>&1; then \
		SLIPWAY_MACHINES=1 unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc \
			$(CARGO) test --offline --locked --workspace --test machines -- --nocapture --test-threads=1; \
	fi

.PHONY: test-cluster
test-cluster: tools ## The same as a test, with a workload, reboots and the end of the cluster; root, QEMU; builds Kubernetes for it once
	$(CARGO) build --locked --workspace --all-targets
	$(CARGO) build --release --locked -p slipway-node
	@tests/cluster/run.sh $(CARGO) test --offline --locked --workspace --test cluster -- --nocapture --test-threads=1 || test $$? -eq 3

.PHONY: aws-smoke
# `make` passes what is on its command line on to the script: DOMAIN, HOSTED_ZONE_ID, REGION, INSTALL and so on.
DRY_RUN ?= 1
aws-smoke: tools ## A small cluster launched, upgraded, renewed and destroyed in the embedded AWS; DRY_RUN=0 DOMAIN= HOSTED_ZONE_ID= in a real account
ifeq ($(DRY_RUN),0)
	$(CARGO) build --locked --workspace --bins
	@PATH="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug:$$PATH" DRY_RUN=0 tests/scripts/aws_smoke.sh
else
	$(CARGO) build --locked --workspace --all-targets
	$(CARGO) test --locked --workspace --test tutorial smoke
endif

.PHONY: simulate
# By default a few minutes' worth; SEEDS=1000000 is a night's.
SEEDS ?= 10000
FIRST ?= 0
simulate: ## Rollouts by the seed, with whatever goes wrong, under the checker's eyes; SEEDS=10000 FIRST=0
	@# Of this one crate alone, without the SDKs of AWS: a selection of its own is built in a folder of its own.
	SLIPWAY_SEEDS=$(SEEDS) SLIPWAY_FIRST=$(FIRST) $(CARGO) test --profile simulate --locked -p slipway-sim --no-default-features \
		--features mimalloc --test simulating -- --nocapture every_seed

.PHONY: worlds
# All worlds of two turns in every cluster are days: ONE_IN=500 goes through one in five hundred of them, always the same.
BOUND ?= 1
ONE_IN ?= 1
OF ?= all
worlds: ## Every way in which a rollout of a small cluster is brought events and dies; OF=1/1/Members BOUND=2 ONE_IN=500
	SLIPWAY_WORLDS=$(BOUND) SLIPWAY_ONE_IN=$(ONE_IN) SLIPWAY_OF=$(OF) $(CARGO) test --profile simulate --locked -p slipway-sim --no-default-features \
		--features mimalloc --test simulating -- --nocapture every_small_world

.PHONY: mutants
# All take an hour or two. By default a part, another one each day; WHICH="--only shared/rollout/src/departures.rs" is one file's.
PARTS ?= 40
WHICH ?= --shard $(shell echo $$(($$(date +%s) / 86400 % $(PARTS))))/$(PARTS)
JUDGES ?= 1000
AT_LEAST ?= 100
MUTANTS_PYTHON := .tools/mutants-python
mutants: $(MUTANTS) ## Mistakes planted inside the rollout engine, one at a time: each must be seen; WHICH="--shard 0/1" JUDGES=1000 AT_LEAST=100
	@cmp -s tests/requirements-mutants.txt $(MUTANTS_PYTHON)/installed.txt || { rm -rf $(MUTANTS_PYTHON) && python3 -m venv $(MUTANTS_PYTHON) && \
		$(MUTANTS_PYTHON)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements-mutants.txt && \
		cp tests/requirements-mutants.txt $(MUTANTS_PYTHON)/installed.txt; }
	@$(MUTANTS_PYTHON)/bin/python tests/scripts/mutants.py $(MUTANTS) $(WHICH) --seeds $(JUDGES) --at-least $(AT_LEAST)

.tools/checkov/installed.txt: tests/requirements-checkov.txt
	@rm -rf .tools/checkov && python3 -m venv .tools/checkov
	@.tools/checkov/bin/pip install --quiet --disable-pip-version-check -r $< && cp $< $@

.PHONY: checkov
checkov: .tools/checkov/installed.txt ## The installation and every example's stacks by checkov's public rules; two minutes the first time
	$(CARGO) build --locked --workspace --bins
	@tests/scripts/checkov.py .tools/checkov/bin/checkov $${CARGO_TARGET_DIR:-target}/debug/slipway

.PHONY: cfn-guard
cfn-guard: $(GUARD) ## The same by AWS' public rules for cfn-guard (tests/cfn-guard); a minute, and some more to build it once
	@tests/scripts/lint-venv.sh
	$(CARGO) build --locked --workspace --bins
	@tests/scripts/cfn_guard.py $(GUARD) .tools/lint/bin/python $${CARGO_TARGET_DIR:-target}/debug/slipway

.PHONY: bench
bench: tools ## What things cost, beside the floor; builds for release, some ten minutes
	$(CARGO) build --release --locked $(FUNCTIONS) -p slipway-tests --bin slipway-render --bin slipway-rollout --bin slipway-scan --bin slipway-bench
	@target/release/slipway-bench
	@for function in slipway-render slipway-rollout slipway-scan; do \
		echo "$$function: start to first request for work, and memory"; \
		tests/scripts/measure_function.py target/release/$$function 20 </dev/null; \
	done
	@infra/package.sh x86_64 --plain

.PHONY: lint
lint: $(DENY) ## Formatting, clippy without a warning, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(DENY) --locked check bans licenses sources

.PHONY: advisories
advisories: $(DENY) ## Known weaknesses of dependencies; needs RustSec's database, from GitHub
	$(DENY) --locked check advisories

# arm64, as infra/template.yaml has it, or x86_64.
ARCHITECTURE ?= arm64

.PHONY: package
package: ## The functions as zips for Lambda, their template, and the node agent, into dist/; ARCHITECTURE=x86_64
	infra/package.sh $(ARCHITECTURE)

# `SECONDS` is a word of bash's own, so it must come from the command line: make fuzz SECONDS=600.
FUZZ_SECONDS = $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

.PHONY: fuzz
fuzz: $(FUZZ) ## Throw anything at what reads the bytes of others; SECONDS=60 each, FUZZED=answers. Without sanitizers: Rust is the stable one
	@for target in $(FUZZED); do \
		mkdir -p target/fuzz/$$target; \
		PATH="$(dir $(abspath $(FUZZ))):$$PATH" cargo fuzz run --sanitizer none --target-dir target/fuzz/build $$target \
			target/fuzz/$$target fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=1048576 -timeout=10; \
	done

.PHONY: docs
docs: docs-tools ## The pages of docs/ as a site, in target/site, with its links checked; some minutes more the first time
	@docs/site/build.py $(MDBOOK) $(MERMAID) target/site
	@docs/site/check_links.py target/site

.PHONY: docs-tools
docs-tools: $(MDBOOK) $(MERMAID)

.PHONY: tools
tools: ## The tools of the tests, into .tools/: Python's, pinned; Debian's etcd and certtool. Quick when done
	@tests/scripts/tools.sh >/dev/null
	@tests/scripts/debian_tool.sh etcd-server etcd >/dev/null || test $$? -eq 3
	@tests/scripts/debian_tool.sh gnutls-bin certtool >/dev/null || test $$? -eq 3

.PHONY: clean
clean: ## Everything that was built or installed here
	$(CARGO) clean
	rm -rf .tools .demo dist

# Once, about two minutes; .tools/ is worth keeping between CI runs. Not optimised: it runs for a second.
$(DENY):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-deny --debug --locked --version $(DENY_VERSION) --root .tools/cargo-deny-$(DENY_VERSION) --quiet

# Once, about three minutes.
$(MUTANTS):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-mutants --debug --locked --version $(MUTANTS_VERSION) --root .tools/cargo-mutants-$(MUTANTS_VERSION) --quiet

# Once, about a minute.
$(FUZZ):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-fuzz --debug --locked --version $(FUZZ_VERSION) --root .tools/cargo-fuzz-$(FUZZ_VERSION) --quiet

# Once.
$(GUARD):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cfn-guard --debug --locked --version $(GUARD_VERSION) --root .tools/cfn-guard-$(GUARD_VERSION) --quiet

# Both once, about a minute together.
$(MDBOOK):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install mdbook --no-default-features --features search --debug --locked --version $(MDBOOK_VERSION) --root .tools/mdbook-$(MDBOOK_VERSION) --quiet

$(MERMAID):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install mdbook-mermaid --debug --locked --version $(MERMAID_VERSION) --root .tools/mdbook-mermaid-$(MERMAID_VERSION) --quiet
