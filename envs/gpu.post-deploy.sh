#!/usr/bin/env bash
# Snakemake runs it inside the new environment, in the folder that it runs in: the top of a clone, or of `ragauge init`.
set -euo pipefail
if [[ -e requirements.lock ]]; then
  python -m pip install --require-hashes --no-deps --requirement requirements.lock
  python -m pip install --requirement envs/requirements-torch.txt
  python -m pip uninstall --yes onnxruntime # whose files the build for GPUs has, too
  python -m pip install --no-deps --editable . onnxruntime-gpu==1.31.1
else
  python -m pip install 'ragauge[workflow,gpu,service,study]==0.1.0'
fi
