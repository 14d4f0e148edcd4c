"""The value of `dtype: auto` in an experiment, decided once, where its run starts."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.cost.hardware import AUTO, DTYPES

AFFECTS_RESULTS = False


def resolved(config: Config, former: Path) -> Config:
    """Return the experiment with a data type in the place of every `auto`.

    A model has the one of the run's former settings, so that its records can be continued. Others
    have the fastest one of the machine that the run starts on. ONNX Runtime runs decoders in
    float32.

    Args:
        former: the settings that a run of this experiment wrote; may be missing.
    """
    dtypes = dict[str, str]()
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        models = yaml.safe_load(former.read_bytes())["models"]
        dtypes = {label: m["dtype"] for label, m in models.items() if m.get("dtype") in DTYPES}
    pipelines = [entry for entry in config.pipelines.values() if entry.engine == "onnx"]
    exported = {config.pipeline_model(entry) for entry in pipelines}
    settled = {
        label: with_dtype(model, dtypes.get(label), ("float32",) if label in exported else DTYPES)
        for label, model in config.models.items()
    }
    return config.model_copy(update={"models": settled})


def with_dtype(
    model: ModelEntry,
    former: str | None = None,
    allowed: Sequence[str] = DTYPES,
    threads: int | None = None,
) -> ModelEntry:
    """Return the model with a data type in the place of `auto`.

    Args:
        former: the data type of records that are continued, taken if it is allowed; else the
            fastest one on this machine.
        threads: None: torch's own choice.
    """
    if model.dtype != AUTO or model.served:
        return model
    if former in allowed:
        return model.model_copy(update={"dtype": former})
    from ragauge.engines import tuning

    candidates = [dtype for dtype in tuning.DTYPE_CANDIDATES if dtype in allowed]
    fastest = tuning.fastest_dtype(model.device, threads, candidates)
    return model.model_copy(update={"dtype": fastest})


def on_this_machine(
    model: ModelEntry, former: str | None = None, threads: int | None = None
) -> ModelEntry:
    """Return a model that this process loads, with its data type (as `with_dtype`), and choose its
    kernels for this process and those that it starts.
    """
    if model.kernels:
        os.environ["RAGAUGE_KERNELS"] = model.kernels
    return with_dtype(model, former, threads=threads)


def planned(model: ModelEntry) -> str:
    """Return the data type that plans of memory and time assume: for `auto` on a CPU the larger
    one.
    """
    if model.dtype != AUTO:
        return model.dtype
    return "bfloat16" if model.device == "cuda" else "float32"
