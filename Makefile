# make        set everything up in .venv, run the whole default experiment, render reports/default/
# make test   set everything up, run the tests
# make smoke  the same experiment at its smallest
# make miniature  the papers' own experiments with tiny models: every kind of cell once, in minutes (PART=cfic: of one paper)
# make faults  disturb writers of files at every operation on the disk: kills, full disks, damage, clocks, memory; prints the table
# make load-test  the retrieval service for five minutes under 64 clients, kills, a slow reader and a flood; prints the table (LOAD=--write)
# make cluster  the same on a Slurm of one node, which it starts (Debian, as root); jobs and Snakemake are killed
# make check  lint, format, types, workflow
# make docs   build the documentation as a site, site/
# make lock   resolve requirements.lock and requirements-oldest.txt anew from pyproject.toml (UPGRADE=1: newest versions)
# make oldest run the tests of engines, scoring and plans with the oldest versions that pyproject.toml allows, in .venv-oldest
# make gpu-kit  pack what a machine with a GPU needs to measure the papers' sizes, dist/gpu-kit.tar.gz
# make dist   build the wheel and the sdist, dist/, and check them
# make audit  look the installed packages up in the database of known vulnerabilities (AUDIT_REQUIRED=1: fail where it is away)
# make sbom   write what the lock files pin as a bill of materials, dist/ragauge.cdx.json (CycloneDX)
# make clean  remove what the default and smoke experiments made (downloaded assets and .venv stay)
#
# `make` installs the exact versions of requirements.lock, each file checked against its hash: the committed numbers belong
# to them. torch alone has no hash there: which build it is (with CUDA from the package index on Linux, a CPU build where one
# can be reached) is for pip's own settings to say: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS. Its version is
# requirements-torch.txt's, which 2.13.0+cpu satisfies and sorts above.

SHELL := bash
PYTHON ?= python3
extras = $(addprefix --extra ,$(1))
LOCKED := workflow retrieval training cluster service study docs dev
OLDEST := workflow retrieval service study dev
OLDEST_TESTS ?= $(wildcard tests/unit/test_lm_*.py tests/unit/test_cost_*.py tests/unit/test_prompts_*.py) \
  tests/unit/test_metrics.py tests/unit/test_scoring.py tests/unit/test_stats.py tests/unit/test_rankers.py \
  tests/unit/test_methods.py tests/unit/test_runner.py tests/unit/test_assets_gguf.py tests/unit/test_tokenizer.py \
  tests/unit/test_engine_onnx.py tests/unit/test_retrieval_index.py tests/equivalence tests/workflow/test_plans.py \
  tests/workflow/test_module.py
CORES ?= all
VENV := .venv
READY := $(VENV)/.ready
PIP := python -m pip install --quiet --disable-pip-version-check
RESOLVE = uv pip compile --quiet pyproject.toml --python-version 3.11 --constraint requirements-torch.txt \
  --no-emit-package torch --no-emit-package ragauge --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONUNBUFFERED := 1
export PYTHONDONTWRITEBYTECODE := # where the environment has it, every job would compile the package again

.PHONY: default setup test smoke miniature faults load-test cluster docs check audit sbom format schema clean lock oldest dist gpu-kit
.DEFAULT_GOAL := default

default: $(READY)
	snakemake --cores $(CORES)

setup: $(READY)

$(READY): pyproject.toml requirements.lock requirements-torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ragauge needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 2; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) --requirement requirements-torch.txt
	$(PIP) --no-deps --editable .
	touch $@

test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

smoke: $(READY)
	snakemake --cores $(CORES) --configfile configs/ci/smoke.yaml

miniature: $(READY)
	PYTHONPATH=$(CURDIR)/tests$${PYTHONPATH:+:$$PYTHONPATH} python -m miniature.run $(addprefix --part ,$(PART)) --cores $(CORES)

faults: $(READY)
	PYTHONPATH=tests$${PYTHONPATH:+:$$PYTHONPATH} python -m injected $(FAULTS)

load-test: $(READY)
	python benchmarks/service.py $(LOAD)

cluster: smoke
	RAGAUGE_CLUSTER=1 python -m pytest -q tests/cluster

check: $(READY)
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

lock: $(READY)
	$(RESOLVE) $(call extras,$(LOCKED)) --generate-hashes --universal --fork-strategy fewest --output-file requirements.lock
	$(RESOLVE) $(call extras,$(OLDEST)) --resolution lowest-direct --output-file requirements-oldest.txt

oldest:
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	PATH=$(CURDIR)/.venv-oldest/bin:$$PATH && $(PIP) --no-deps --requirement requirements-oldest.txt \
	  && $(PIP) --requirement requirements-torch.txt && $(PIP) --no-deps --editable . \
	  && OMP_NUM_THREADS=1 python -m pytest -q $(OLDEST_TESTS)

gpu-kit:
	$(PYTHON) benchmarks/gpu_kit.py pack dist/gpu-kit.tar.gz

dist: $(READY)
	rm -rf dist
	python -m build
	python -m twine check --strict dist/*

audit: $(READY)
	python .ci/audit.py

sbom:
	$(PYTHON) .ci/sbom.py

format: $(READY)
	ruff check --fix-only --quiet .
	ruff format .
	snakefmt Snakefile workflow

schema: $(READY)
	python -m ragauge.experiment.schema workflow/schemas/config.schema.json

clean:
	rm -rf results/{default,smoke} reports/{default,smoke} logs resources .snakemake
