PYTHON ?= python3
SEEDS ?= 2000
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-live sim museum chaos-test bench fuzz clean

help: ## List the targets (ARGS="..." is passed on to the tool)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the environment in .venv, when its inputs changed
	@:

# Debian ships python3 without ensurepip, and venv's own message for it is a page long.
$(READY): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "stormcast needs Python 3.11 or newer: apt-get install python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a venv: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

check: setup ## Format, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup ## Rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# pytest exits with 5 where ARGS selects nothing, which one of the two halves may do.
test: setup ## Run the tests: make test ARGS="-k window"
	$(BIN)/pytest -n auto --dist worksteal --ignore=tests/integration $(ARGS) || [ $$? -eq 5 ]
	@$(MAKE) --no-print-directory test-live

# One after the other: each of them keeps both cores busy, and has bounds in seconds.
test-live: setup ## Of the tests, those with real sockets, processes and (as root) namespaces
	$(BIN)/pytest tests/integration $(ARGS) || [ $$? -eq 5 ]

sim: setup ## Look for violations in SEEDS random simulations
	$(BIN)/stormcast search --seeds $(SEEDS) $(ARGS)

museum: setup ## Show each known flaw on the protocol that has it, and gone on its successor
	$(BIN)/stormcast museum $(ARGS)

chaos-test: setup ## Run every scenario file in the simulator and print the verdict
	$(BIN)/stormcast chaos-test $(ARGS)

bench: setup ## Measure members against their peers, in one run: the table of docs/performance.md
	$(BIN)/stormcast bench table $(ARGS)

fuzz: setup ## Run the property tests at length, with fresh randomness
	$(BIN)/pytest -n auto --dist worksteal tests/property --hypothesis-profile=fuzz $(ARGS)

# .hypothesis stays: it remembers the failures that fuzzing has found.
clean: ## Remove the environment, caches and build output
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
