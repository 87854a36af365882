# What a person does here. `make help` lists it; .ci/run does it all on a bare machine.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# The functions as the demo and the end-to-end tests run them: unmodified binaries.
FUNCTIONS := -p slipway-render -p slipway-rollout
DENY_VERSION := 0.20.2
DENY := .tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

.PHONY: demo
demo: tools ## Launch examples/production.yaml in an embedded AWS, and watch; ARGS=--keep leaves it running
	$(CARGO) build --locked $(FUNCTIONS) -p slipway-tests --bins
	@$(CARGO) run --quiet --locked -p slipway-tests --bin slipway-demo -- $(ARGS)

.PHONY: test
test: tools ## All tests, with all that they need, and the templates' lint
	$(CARGO) build --locked $(FUNCTIONS)
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --locked --workspace && $(CARGO) test --locked --workspace --doc; \
	else \
		$(CARGO) test --locked --workspace; \
	fi
	tests/scripts/lint-template.sh

.PHONY: bench
bench: tools ## What things cost, beside the floor; builds for release, some ten minutes
	$(CARGO) build --release --locked $(FUNCTIONS) -p slipway-tests --bin slipway-render --bin slipway-rollout --bin slipway-bench
	@target/release/slipway-bench
	@for function in slipway-render slipway-rollout; do \
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
package: ## The functions as zips for Lambda, into dist/, with the template that names them; ARCHITECTURE=x86_64
	infra/package.sh $(ARCHITECTURE)

.PHONY: tools
tools: ## The Python tools of the tests, pinned, into .tools/; quick when done
	@tests/scripts/tools.sh >/dev/null

.PHONY: clean
clean: ## Everything that was built or installed here
	$(CARGO) clean
	rm -rf .tools .demo dist

# Once, about three minutes; .tools/ is worth keeping between CI runs.
$(DENY):
	$(CARGO) install cargo-deny --locked --version $(DENY_VERSION) --root .tools/cargo-deny-$(DENY_VERSION) --quiet
