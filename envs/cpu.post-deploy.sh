#!/usr/bin/env bash
# Snakemake runs it inside the new environment, at the top of the checkout.
set -euo pipefail
python -m pip install --editable '.'
