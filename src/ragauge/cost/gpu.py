"""The GPU that the needs of an experiment are computed for."""

from __future__ import annotations

from typing import Any

GPU: dict[str, Any] = {  # NVIDIA A100 80 GB SXM, by its data sheet: dense tensor cores, HBM2e
    "name": "NVIDIA A100 80 GB SXM",
    "bandwidth_bytes_per_s": {"high": 2.039e12},
    "matmul_flop_per_s": {
        "float32": {"high": 19.5e12},
        "bfloat16": {"high": 312e12},
        "float16": {"high": 312e12},
        "int8": {"high": 624e12},
    },
}
