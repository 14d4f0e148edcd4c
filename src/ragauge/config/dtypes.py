"""The value of `dtype: auto` in an experiment, decided once, where its run starts."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.cost.hardware import AUTO, DTYPES

AFFECTS_RESULTS = False


def resolved(config: Config, former: Path) -> Config:
    """The experiment with a data type in the place of every `auto`. A model has the one of the
    run's former settings, so that its records can be continued. Others have the fastest one of the
    machine that the run starts on. ONNX Runtime runs decoders in float32. `former`: the settings
    that a run of this experiment wrote; may be missing.
    """
    former_dtypes = dict[str, Any]()
    chosen = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        models = yaml.safe_load(former.read_bytes())["models"]
        former_dtypes = {
            label: m.get("dtype") for label, m in models.items() if m.get("dtype") in DTYPES
        }
    exported = {
        config.pipeline_model(entry)
        for entry in config.pipelines.values()
        if entry.engine == "onnx"
    }
    for label, model in config.models.items():
        allowed = ("float32",) if label in exported else None
        dtype = former_dtypes.get(label)
        chosen[label] = with_dtype(
            model, dtype if allowed is None or dtype in allowed else None, allowed
        )
    return config.model_copy(update={"models": chosen})


def with_dtype(
    model: ModelEntry,
    dtype: str | None = None,
    allowed: Sequence[str] | None = None,
    threads: int | None = None,
) -> ModelEntry:
    """The model with a data type in the place of `auto`: this one or, where it is None, the fastest
    on this machine of the `allowed` ones (None: all candidates) with so many `threads` (None:
    torch's own choice).
    """
    if model.dtype != AUTO or model.served:
        return model
    if dtype is None:
        from ragauge.engines import tuning

        dtype = tuning.fastest_dtype(model.device, threads, allowed or tuning.DTYPE_CANDIDATES)
    return model.model_copy(update={"dtype": dtype})


def planned(model: ModelEntry) -> str:
    """The data type that plans of memory and time assume: for `auto` on a CPU, the larger one."""
    return (
        model.dtype if model.dtype != AUTO else "bfloat16" if model.device == "cuda" else "float32"
    )
