# `make` installs the exact versions of requirements.lock, each file checked against its hash: the committed numbers
# belong to them. Only torch has no hash there: whether it is a build with CUDA or without depends on pip's own settings
# (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS). Its version is that of envs/requirements-torch.txt.
# A target with `##` is shown by `make help`, one with `#-` by `make help-dev`.

SHELL := bash
PYTHON ?= python3
extras = $(addprefix --extra ,$(1))
LOCKED := workflow retrieval training cluster service study punkt docs dev
OLDEST := workflow retrieval service study dev
OLDEST_TESTS ?= tests/unit/engines tests/unit/cost tests/unit/methods/prompts tests/unit/metrics/test_metrics.py \
  tests/unit/results/test_scoring.py tests/unit/results/test_stats.py tests/unit/methods/rankers/test_rankers.py \
  tests/unit/methods/test_superposition.py tests/unit/measure/test_runner.py tests/unit/assets/test_gguf.py \
  tests/unit/assets/test_tokenizer.py tests/unit/pipelines/retrieval/test_encoder_graphs.py tests/unit/pipelines/retrieval/test_index.py \
  tests/equivalence tests/workflow/test_plans.py tests/workflow/test_module.py
CORES ?= all
VENV := .venv
READY := $(VENV)/.ready
PIP := python -m pip install --quiet --disable-pip-version-check
RESOLVE = uv pip compile --quiet pyproject.toml --python-version 3.11 --constraint envs/requirements-torch.txt \
  --no-emit-package torch --no-emit-package ragauge --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONUNBUFFERED := 1
export PYTHONDONTWRITEBYTECODE := # where the environment has it, every job would compile the package again

.PHONY: help help-dev default full setup test smoke miniature load-test cluster docs check audit sbom format schema proto clean lock oldest dist gpu-kit
.DEFAULT_GOAL := default

help: ## make help: show these targets
	@sed -n 's/^[a-z].*## make/make/p' $(MAKEFILE_LIST)
	@echo "make help-dev shows the targets for developers."

help-dev: #- make help-dev: show the targets for developers
	@sed -n 's/^[a-z].*#- make/make/p' $(MAKEFILE_LIST)

default: $(READY) ## make: set everything up in .venv, run the default experiment, render reports/default/
	snakemake --cores $(CORES)

full: $(READY) ## make full: run all of the papers' tables and figures on a small model, render reports/full/
	snakemake --cores $(CORES) --configfile configs/full.yaml

setup: $(READY) ## make setup: create .venv with the locked packages

$(READY): pyproject.toml requirements.lock envs/requirements-torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ragauge needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 2; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	python envs/install.py
	touch $@

test: $(READY) ## make test: set everything up, run the tests (TESTS=tests/unit/engines: some of them)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

smoke: $(READY) ## make smoke: run the default experiment at its smallest, in minutes
	snakemake --cores $(CORES) --configfile configs/ci/smoke.yaml

miniature: $(READY) #- make miniature: run the papers' experiments with tiny models (PART=cfic: one paper)
	PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/tests/support$${PYTHONPATH:+:$$PYTHONPATH} python -m miniature.run $(addprefix --part ,$(PART)) --cores $(CORES)

load-test: $(READY) #- make load-test: load the retrieval service for five minutes (LOAD='--out FILE.json': record it)
	python benchmarks/service.py $(LOAD)

cluster: $(READY) #- make cluster: run the workflow on a one-node Slurm that it starts (Debian, as root)
	RAGAUGE_CLUSTER=1 python -m pytest -q tests/cluster

check: $(READY) #- make check: lint, format, types, workflow
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: $(READY) #- make docs: build the documentation, site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --config-file docs/mkdocs.yml

lock: $(READY) #- make lock: resolve the lock files anew (UPGRADE=1: to the newest versions)
	$(RESOLVE) $(call extras,$(LOCKED)) --generate-hashes --universal --fork-strategy fewest --output-file requirements.lock
	$(RESOLVE) $(call extras,$(OLDEST)) --resolution lowest-direct --output-file envs/requirements-oldest.txt

oldest: #- make oldest: test with the oldest versions that pyproject.toml allows, in .venv-oldest
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	PATH=$(CURDIR)/.venv-oldest/bin:$$PATH && $(PIP) --no-deps --requirement envs/requirements-oldest.txt \
	  && $(PIP) --requirement envs/requirements-torch.txt && $(PIP) --no-deps --editable . \
	  && OMP_NUM_THREADS=1 python -m pytest -q $(OLDEST_TESTS)

gpu-kit: $(READY) #- make gpu-kit: rehearse and pack what a GPU machine needs to measure the papers' sizes, dist/gpu-kit.tar.gz
	RAGAUGE_GPU_KIT=1 python -m pytest -q tests/unit/benchmarks/test_gpu_kit.py
	python benchmarks/gpu_kit.py pack dist/gpu-kit.tar.gz

dist: $(READY) #- make dist: build and check the wheel and the sdist, dist/
	rm -rf dist
	python -m build
	python -m twine check --strict dist/*

audit: $(READY) #- make audit: check installed packages for known vulnerabilities (AUDIT_REQUIRED=1: must)
	python .ci/audit.py

sbom: #- make sbom: write the locked packages as a bill of materials, dist/ragauge.cdx.json
	$(PYTHON) .ci/sbom.py

format: $(READY) #- make format: format the code and fix what the linter can
	ruff check --fix-only --quiet .
	ruff format .
	snakefmt Snakefile workflow

schema: $(READY) #- make schema: write the JSON schema of configurations
	python -m ragauge.config.schema workflow/schemas/config.schema.json

proto: $(READY) #- make proto: generate the modules of the retrieval service's messages
	python -m grpc_tools.protoc --proto_path=src --python_out=src --pyi_out=src \
	  src/ragauge/pipelines/service/proto/ragauge.proto

clean: #- make clean: remove results of the default, full and smoke runs (.venv and downloads stay)
	rm -rf results/{default,full,smoke} reports/{default,full,smoke} logs resources .snakemake
