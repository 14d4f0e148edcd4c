# make        set everything up in .venv, run the whole default experiment, render reports/default/
# make test   set everything up, run the tests
# make smoke  the same experiment at its smallest
# make miniature  the papers' own experiments with tiny models: every kind of cell once, in minutes
# make cluster  the same on a Slurm of one node, which it starts (Debian, as root); jobs and Snakemake are killed
# make check  lint, format, types, workflow
# make docs   build the documentation as a site, site/
# make audit  look the installed packages up in the database of known vulnerabilities
# make clean  remove what the default and smoke experiments made (downloaded assets and .venv stay)
#
# pip's own settings choose where packages come from and which build of torch: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL,
# PIP_FIND_LINKS. On Linux the package index serves torch with CUDA; where PyTorch's CPU builds can be reached
# through one of these settings, pip takes them (2.13.0+cpu satisfies the pin and sorts above 2.13.0).

SHELL := bash
PYTHON ?= python3
EXTRAS ?= dev,training,cluster,study
CORES ?= all
VENV := .venv
READY := $(VENV)/.ready

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONUNBUFFERED := 1
export PYTHONDONTWRITEBYTECODE := # where the environment has it, every job would compile the package again

.PHONY: default setup test smoke miniature cluster docs check audit format schema clean
.DEFAULT_GOAL := default

default: $(READY)
	snakemake --cores $(CORES)

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ragauge needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 2; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

smoke: $(READY)
	snakemake --cores $(CORES) --configfile configs/smoke.yaml

miniature: $(READY)
	PYTHONPATH=tests$${PYTHONPATH:+:$$PYTHONPATH} python -m miniature.run

cluster: smoke
	RAGAUGE_CLUSTER=1 python -m pytest -q tests/cluster

check: $(READY)
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: $(READY)
	python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

audit: $(READY)
	python .ci/audit.py

format: $(READY)
	ruff check --fix-only --quiet .
	ruff format .
	snakefmt Snakefile workflow

schema: $(READY)
	python -m ragauge.experiment.schema workflow/schemas/config.schema.json

clean:
	rm -rf results/{default,smoke,miniature} reports/{default,smoke,miniature} logs resources .snakemake
