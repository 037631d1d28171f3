PYTHON ?= python3
SEEDS ?= 1000
LONG ?= 25000
FRAMES ?= 10000000
OUT ?= runs/fuzz-live
KILLS ?= 1000
SOAK ?= 30min
ARGS ?=
BASE ?=
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
BIN := .venv/bin
READY := .venv/.ready
AUDIT := .venv-audit

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-spark test-live test-long test-guest test-docker test-kubernetes test-kubernetes-spark compiled test-compiled sim search-long soak soak-mutants museum findings kill-test chaos-test chaos-library image image-spark manifests bench fuzz fuzz-live sbom audit clean

help: ## List the targets (ARGS="..." is passed on to the tool)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the environment in .venv, when its inputs changed
	@:

# Debian ships python3 without ensurepip, and venv's own message for it is a page long.
$(READY): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "stormcast needs Python 3.11 or newer: apt-get install python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a venv: apt-get install python3-venv" >&2; exit 2; }
	@echo "making the environment in .venv, once: about two minutes" >&2
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

check: setup ## Format, lint, types and import rules; whether all tests can be imported
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@tests=$$($(BIN)/pytest --collect-only -qq) || { echo "$$tests" | tail -n 40; exit 1; }

format: setup ## Rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# pytest exits with 5 where ARGS selects nothing, which some of the three parts may do.
ALONE := tests/integration tests/conformance tests/kills tests/pipeline

test: setup ## Run the tests: make test ARGS="-k window"; JOBS=2: Spark beside the live ones; LIVE_AFTER=PID: these wait until it has ended
	$(BIN)/pytest -n auto --dist worksteal $(ALONE:%=--ignore=%) -m "not long" $(ARGS) || [ $$? -eq 5 ]
	@$(MAKE) --no-print-directory --jobs=$(or $(JOBS),1) --output-sync=target test-spark test-live

# Behind whatever else runs: it computes, and others have bounds in seconds. Two workers, as Spark plans
# on one core; a file stays with one, as some judge all their runs at once. A cache of its own, as the
# live ones look there for what has failed.
test-spark: setup ## Of the tests, those on Spark, which takes all cores by itself
	nice -n 10 $(BIN)/pytest -n 2 --dist loadfile -o cache_dir=.pytest_cache/spark tests/pipeline -m "not long" --durations=5 $(ARGS) || [ $$? -eq 5 ]

# Two at a time, as they wait more than they work. What fails has to pass alone: some look at what the
# whole machine has, and each has bounds in seconds. Kills come last, by themselves: after each few of
# them what was left is cleaned up, and other tests look at what they have left.
LIVE := tests/integration tests/conformance -m "not long"

test-live: setup ## Of the tests, those with real sockets, processes and (as root) namespaces
	@$(if $(LIVE_AFTER),tail --pid=$(LIVE_AFTER) --follow /dev/null)
	@$(BIN)/pytest -n 2 --dist worksteal $(LIVE) --durations=15 $(ARGS); code=$$?; \
	case $$code in 0|5) ;; 1) echo "once more, alone: what failed" >&2; \
		$(BIN)/pytest --last-failed --last-failed-no-failures=none $(LIVE) $(ARGS);; \
		*) exit $$code;; esac
	@$(BIN)/pytest tests/kills -m "not long" $(ARGS) || [ $$? -eq 5 ]

test-long: setup ## More of the same, on more stacks: what `make test` leaves out
	$(BIN)/pytest tests -m long $(ARGS)

# The whole machine is emulated, so these tests see a kernel that the host need not have.
test-guest: setup ## Test netem and nftables' queue, on a kernel that has them (root, qemu-system-x86)
	tests/guest/boot tests/guest/suite $(ARGS) || [ $$? -eq 3 ] # it cannot be had here, and said why

IN_CLUSTER := STORMCAST_KUBERNETES=$${STORMCAST_KUBERNETES:-1} $(BIN)/pytest

# Members wait more than they work, so several at a time; what fails has to pass alone.
IN_DOCKER := STORMCAST_DOCKER=$${STORMCAST_DOCKER:-1} $(BIN)/pytest \
	tests/conformance tests/integration/test_docker_backend.py \
	tests/integration/test_guest_containers.py -m docker -rs

test-docker: setup ## Each verb of the backend docker, and guests of images, on the images of make image
	@$(IN_DOCKER) -n 3 --dist worksteal --durations=5 $(ARGS); code=$$?; \
	case $$code in 0|5) ;; 1) echo "once more, alone: what failed" >&2; \
		$(IN_DOCKER) --last-failed --last-failed-no-failures=none $(ARGS);; \
		*) exit $$code;; esac

test-kubernetes: setup ## Install the chart where KUBECONFIG points: scenarios, and each verb of the backend
	$(IN_CLUSTER) tests/kubernetes -m "not long" -rs $(ARGS) || [ $$? -eq 5 ]
	$(IN_CLUSTER) tests/conformance -m k8s -rs --durations=5 $(ARGS) || [ $$? -eq 5 ]

test-kubernetes-spark: setup ## The same with Spark in the cluster (make image-spark); SHARED=a folder that all nodes see
	@test -n "$(SHARED)" || { echo "SHARED=FOLDER: one with the same content on each node, and here" >&2; exit 2; }
	STORMCAST_SHARED=$(SHARED) $(IN_CLUSTER) tests/kubernetes/test_spark.py -rs $(ARGS)

# A C compiler takes some minutes over them. They go into a wheel, never into the folders here: code
# that was compiled from older sources would be used without a word.
WHEELS := dist/compiled
COMPILED := .venv-compiled

compiled: setup ## Build a wheel whose protocols are compiled (needs a C compiler; docs/adr/0005)
	@command -v cc >/dev/null || { echo "no C compiler: apt-get install gcc libc6-dev" >&2; exit 2; }
	@test -e "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || \
		{ echo "no Python.h for $$($(BIN)/python -V): apt-get install python3-dev" >&2; exit 2; }
	rm -rf $(WHEELS)
	STORMCAST_COMPILED=1 $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEELS) .
	@ls $(WHEELS)/*.whl

test-compiled: compiled ## Hold that wheel against the sources: same rows of a search, same bytes of runs
	rm -rf $(COMPILED)
	$(PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/pip install --quiet --require-hashes -r requirements.txt
	$(COMPILED)/bin/pip install --quiet --no-deps $(WHEELS)/*.whl
	STORMCAST_COMPILED=$(COMPILED)/bin $(BIN)/pytest tests/compiled $(ARGS)

sim: setup ## Look for violations in SEEDS random simulations, the same each time
	$(BIN)/stormcast search --seeds $(SEEDS) $(ARGS)

search-long: setup ## The same in four fresh ranges of LONG seeds, which are drawn and said: hours
	$(BIN)/stormcast search --seeds $(LONG) $(ARGS) \
		--from random --from random --from random --from random

soak: setup ## As root, a storm over real processes for SOAK, judged window by window (docs/soak.md)
	$(BIN)/stormcast soak --backend netns --for $(SOAK) $(ARGS)

soak-mutants: setup ## Plant each known bug into a soak of ten minutes in the simulator: an hour (docs/testing.md)
	$(BIN)/python -m tests.mutants.soaked $(ARGS)

museum: setup ## Show each known flaw on the protocol that has it, and gone on its successor
	$(BIN)/stormcast museum $(ARGS)

findings: setup ## Measure what the design notes claim, and write the answers into docs/findings.md: some minutes
	$(BIN)/stormcast compare --notes --write docs/findings.md $(ARGS)

kill-test: setup ## As root, kill rigs, agents, keepers, members and judges, KILLS times, and look what is left
	$(BIN)/python -m tests.kills --kills $(KILLS) $(ARGS)

# As root on Debian it installs nftables, iproute2 and iptables where they are missing, and says so
# before; with SYSTEM=no it installs nothing.
INSTALL := $(if $(filter no,$(SYSTEM)),,--install)

chaos-test: setup ## As root, break every protocol on real packets; else run all scenarios in the simulator
	$(BIN)/stormcast chaos-test $(INSTALL) $(ARGS)

chaos-library: setup ## As root, run every scenario of the library on real packets, for half an hour
	$(BIN)/stormcast chaos-test --library $(INSTALL) $(ARGS)

image: ## Build the images of members and of the chaos rig: make image TAG=1 ARGS="--network host"
	docker build $(BASE:%=--build-arg BASE=%) -f docker/Dockerfile.node -t stormcast-node:$(TAG) $(ARGS) .
	docker build $(BASE:%=--build-arg BASE=%) -f docker/Dockerfile.chaos -t stormcast-chaos:$(TAG) $(ARGS) .

image-spark: ## Build the image of Spark's driver and executors (docs/kubernetes.md): some minutes, 1.3 GB
	docker build $(BASE:%=--build-arg BASE=%) -f docker/Dockerfile.spark -t stormcast-spark:$(TAG) $(ARGS) .

# Without secrets: nobody shall run with ones that everybody knows.
manifests: setup ## Render the chart into manifests/stormcast.yaml
	$(BIN)/helm template demo helm/stormcast --namespace stormcast --no-hooks \
		--set token.existingSecret=demo-stormcast-token \
		--set tls.existingSecret=demo-stormcast-tls \
		--set keys.existingSecret=demo-stormcast-keys > manifests/stormcast.yaml

bench: setup ## Measure members against their peers, in one run: the table of docs/performance.md
	$(BIN)/stormcast bench table $(ARGS)

fuzz: setup ## Run the property tests at length, with fresh randomness
	$(BIN)/pytest -n auto --dist worksteal tests/property --hypothesis-profile=fuzz $(ARGS)

# As root. The same command goes on with what a broken-off one has left in OUT.
fuzz-live: setup ## Send FRAMES hostile frames to groups under load, in namespaces (root): an hour or more
	$(BIN)/python -m tests.fuzz --frames $(FRAMES) --out $(OUT) $(ARGS)

# In an environment of their own: what these two tools need is no part of what they look at.
$(AUDIT)/.ready: requirements-audit.txt
	@echo "making the environment of sbom and audit in $(AUDIT), once: a minute" >&2
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

# A warning that pins do not say who needs whom is about what the two others have.
SBOM := $(AUDIT)/bin/python -W ignore::UserWarning -m cyclonedx_py
SBOM_WORDS := --pyproject pyproject.toml --mc-type application --output-reproducible

sbom: setup $(AUDIT)/.ready ## Write into dist/ what this environment and the images are made of (CycloneDX)
	@mkdir -p dist
	$(SBOM) environment $(SBOM_WORDS) --output-file dist/sbom.json $(BIN)/python
	$(SBOM) requirements $(SBOM_WORDS) --output-file dist/sbom-node.json docker/requirements-node.txt
	$(SBOM) requirements $(SBOM_WORDS) --output-file dist/sbom-chaos.json docker/requirements-chaos.txt
	$(SBOM) requirements $(SBOM_WORDS) --output-file dist/sbom-spark.json docker/requirements-spark.txt

# Those of the images are among them (tests/chart/test_images.py).
audit: $(AUDIT)/.ready ## Look all pinned packages up among known flaws: exits 1 with one, 3 where it cannot
	$(AUDIT)/bin/python .ci/audit.py $(AUDIT)/bin/pip-audit requirements.txt requirements-audit.txt

# .hypothesis stays: it remembers the failures that fuzzing has found.
clean: ## Remove the environment, caches and build output
	rm -rf .venv $(AUDIT) $(COMPILED) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
