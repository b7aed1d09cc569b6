# Everything a developer or CI runs. Each target sets up what it needs: a bare clone needs only
# Python >= 3.11 and a package index that pip knows of. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
SHARED ?= ../shared
NODES ?= 8x dgx-h100, 4x dgx-1-v100

# Compiled modules are kept. Images of Python often say otherwise, and then each of the tests' workers
# and each program that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE
# pyright looks for a newer release in the package index and prints it; the lock decides here.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# uv would write the address of the index it used into the lock's header.
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --fork-strategy fewest --custom-compile-command "make lock" --upgrade

# pytest's workers: one per processor, or e.g. WORKERS=0 for none (a debugger needs that).
WORKERS ?= auto
# Tests of the programs; those of the harness, Kubernetes and the benchmarks run when these change.
CLUSTER_TESTS := $(addprefix tests/cluster/of_,extender deployment node kubectl install)
# The versions of Kubernetes that `make test-versions` runs; test-cluster runs the default one.
VERSIONS ?= 1.37 1.35
# How often `make test-busy` runs `make test`.
RUNS ?= 10
# SERVE=1 keeps the demo's page live.
SERVE ?=
# Where `make test-page` keeps its pictures.
PAGE_SHOTS ?= build/page-shots
# COVERAGE=1 measures branch coverage on the way, for `make coverage`.
COVERAGE ?=
# Of the images: which, for which architectures, and what to put before their names.
ONLY ?=
ARCHITECTURES ?=
REGISTRY ?=
# The image under both, by its digest, or `debian`: made from Debian's mirror, where there is no registry.
BASE ?=
# The tag of images and manifests; of these also where they go, the API server's version, files of values.
MANIFESTS ?= dist/manifests
TAG ?=
KUBERNETES ?=
VALUES ?=
# RELEASE_FLAGS=--untagged makes the files of a development version.
RELEASE_FLAGS ?=
IMAGE_FLAGS = $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(BASE),--base $(BASE)) \
	$(if $(ARCHITECTURES),--architectures $(ARCHITECTURES))

.PHONY: help setup fmt format-check lint imports types mypy pyright unit coverage docs test test-all \
	test-busy test-nightly mutation test-shared build-cluster test-cluster test-kubelet test-install test-page test-versions cluster demo bench \
	bench-cluster bench-node manifests images push release golden protos lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv from the locked versions; quick when nothing changed

$(STAMP): requirements/dev.txt requirements/lock.txt requirements/install.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"$(PYTHON) is Python {sys.version.split()[0]}, expected 3.11 or later (set PYTHON=...)")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python requirements/install.py requirements/dev.txt requirements/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

fmt: $(STAMP) ## format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(STAMP) ## fail where `make fmt` would change something
	$(BIN)/ruff format --check .

lint: $(STAMP) ## ruff, every rule that pyproject.toml does not except
	$(BIN)/ruff check .

imports: $(STAMP) ## the direction of dependencies (import-linter)
	$(BIN)/lint-imports --no-logo

types: $(STAMP) ## mypy strict beside pyright
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target mypy pyright

mypy: $(STAMP)
	$(BIN)/mypy

pyright: $(STAMP)
	$(BIN)/pyright

unit: $(STAMP) ## all tests and doctests that need no control plane, in random order, in parallel
	$(BIN)/pytest -n $(WORKERS) --durations=30 $(if $(COVERAGE),--cov --cov-report=)

coverage: $(STAMP) ## the coverage gates, after `make unit COVERAGE=1`
	$(BIN)/coverage report --include='topology/*' --fail-under=100
	$(BIN)/coverage report --include='kube/*' --fail-under=95
	$(BIN)/coverage report --include='extender/*' --fail-under=95
	$(BIN)/coverage report --include='plugin/*' --fail-under=95
	$(BIN)/coverage report --include='kubectl_coterie/*' --fail-under=95

docs: $(STAMP) ## the commands, links and generated parts of the documentation
	$(BIN)/pytest tests/docs

test: $(STAMP) ## what every change must pass: format, lint, contracts, types, unit and documentation tests (7 to 10 minutes on two cores)
	@$(MAKE) --no-print-directory format-check lint imports
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory unit

test-all: ## what CI runs: `make test`, coverage gates, ../shared where it is there, the real control plane and kubelets
	.ci/run

test-busy: ## `make test` ten times in a row (RUNS), each on a fresh clone beside four busy loops
	@folder=$$(mktemp -d); loops=; trap 'kill $$loops; rm -rf "$$folder"' EXIT; \
	for _ in 1 2 3 4; do while :; do :; done & loops="$$loops $$!"; done; \
	for run in $$(seq $(RUNS)); do \
		git clone --quiet . "$$folder/$$run"; \
		$(MAKE) --no-print-directory -C "$$folder/$$run" test; \
		rm -rf "$$folder/$$run"; printf '=== run %s of %s passed\n' "$$run" $(RUNS); \
	done

test-nightly: build-cluster ## what takes longer: many more examples, tests of harness and Kubernetes that passed before
	COTERIE_EXAMPLES=thorough PYTEST_TIMEOUT=3600 $(MAKE) unit
	$(BIN)/python -m tests.cluster test --again
	COTERIE_HELM=3 $(BIN)/pytest -m cluster tests/cluster/of_deployment/test_chart*.py
	$(MAKE) mutation

mutation: $(STAMP) ## how many of a sample of faults in selection and accounting the tests find (half an hour)
	$(BIN)/python -m tests.mutation --floor 80

test-shared: $(STAMP) ## the tests that read recordings, traces and measurements from ../shared
	@test -d $(SHARED) || { echo "$(SHARED) is not there: put the recordings, traces and measurements there, or set SHARED=..." >&2; exit 1; }
	COTERIE_SHARED=$(SHARED) $(BIN)/pytest -m shared -n $(WORKERS)

build-cluster: $(STAMP) ## etcd, Kubernetes, Helm and Prometheus from their Go modules into a cache, if they are not there (12 to 25 minutes)
	$(BIN)/python -m tests.cluster build

test-cluster: build-cluster ## the tests on a real API server and a real kube-scheduler
	$(BIN)/pytest -m "cluster and alone" $(CLUSTER_TESTS)
	$(BIN)/python -m tests.cluster test $(if $(filter-out auto,$(WORKERS)),--workers $(WORKERS)) $(CLUSTER_TESTS)

test-kubelet: build-cluster ## those of them with real kubelets and containers (Linux, root)
	$(BIN)/pytest -m kubelet $(CLUSTER_TESTS)

test-install: build-cluster ## those of them that install Coterie as pods, by kubectl and by Helm (Linux, root)
	$(BIN)/pytest -m install -n $(if $(filter-out auto,$(WORKERS)),$(WORKERS),2) --dist loadfile tests/cluster/of_install

test-page: $(STAMP) ## the page in a real headless Chromium (where none is here: root and apt-get); its pictures are kept in PAGE_SHOTS
	@command -v chromium >/dev/null || { apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends chromium fonts-dejavu-core; }
	PAGE_SHOTS=$(PAGE_SHOTS) $(BIN)/pytest -m page tests/page

test-versions: $(STAMP) ## the same on each other supported version of Kubernetes (VERSIONS=1.37 for one)
	for version in $(VERSIONS); do COTERIE_KUBERNETES=$$version $(MAKE) test-cluster; done

cluster: $(STAMP) ## run such a cluster with the extender until ctrl-C; builds etcd, Kubernetes and Helm if they are not there (NODES="8x dgx-h100, ...")
	@$(BIN)/python -m tests.cluster run --nodes "$(NODES)"

demo: $(STAMP) ## place pods on an embedded cluster, beside its rivals; writes an HTML report (SERVE=1: then the page, live)
	@$(BIN)/python -m benchmarks.demo $(if $(SERVE),--serve)

bench: $(STAMP) ## every benchmark; results go to benchmarks/results/
	$(BIN)/python -m benchmarks

bench-cluster: build-cluster ## the benchmarks on a real API server and a real kube-scheduler (about 35 minutes)
	$(BIN)/python -m benchmarks.cluster

bench-node: build-cluster ## the node plugin beside a real kubelet: latency, memory, writes (as root, some minutes)
	$(BIN)/python -m benchmarks.node

manifests: $(STAMP) ## plain YAML of each way to run Coterie, rendered from the chart by Helm into MANIFESTS (REGISTRY=, TAG=, KUBERNETES=, VALUES=)
	$(BIN)/python -m deploy.manifests --output $(MANIFESTS) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TAG),--tag $(TAG)) \
		$(if $(KUBERNETES),--kubernetes $(KUBERNETES)) $(addprefix --values ,$(VALUES))

images: $(STAMP) ## the images as OCI archives in dist/images, by buildah or podman (ONLY="extender plugin", TAG=1.0, ARCHITECTURES=amd64, BASE=debian)
	$(BIN)/python -m deploy.release images $(if $(ONLY),--only $(ONLY)) $(if $(TAG),--tag $(TAG)) $(IMAGE_FLAGS)

push: $(STAMP) ## build them and push them to REGISTRY
	@test -n "$(REGISTRY)" || { echo "REGISTRY is not set, expected the registry to push to: make push REGISTRY=registry.example" >&2; exit 1; }
	$(BIN)/python -m deploy.release images --push $(if $(ONLY),--only $(ONLY)) $(if $(TAG),--tag $(TAG)) $(IMAGE_FLAGS)

release: $(STAMP) ## every file of a release in dist/release; signs nothing
	$(BIN)/python -m deploy.release release $(IMAGE_FLAGS) $(RELEASE_FLAGS)

golden: $(STAMP) ## rewrite the golden files and the generated parts of the documentation
	$(BIN)/pytest --update-golden

protos: $(STAMP) ## generate plugin/pb from its .proto files
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. plugin/pb/*.proto

lock: $(STAMP) ## resolve the dependencies again, into requirements/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	$(UV_COMPILE) pyproject.toml --all-extras --group dev --output-file requirements/dev.txt
	$(UV_COMPILE) pyproject.toml --extra extender --constraint requirements/dev.txt --output-file requirements/extender.txt
	$(UV_COMPILE) pyproject.toml --extra plugin --constraint requirements/dev.txt --output-file requirements/plugin.txt
	$(UV_COMPILE) --group lock --output-file requirements/lock.txt

clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .import_linter_cache build dist
