"""RETRO in ONNX Runtime: its parts as graphs."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from ragauge.assets.store import write_manifest
from ragauge.engines.onnx.graphs import write_graph
from ragauge.engines.onnx.runtime import OnnxModel, check_origin
from ragauge.pipelines.modes._retro import RetroReader, make_network
from ragauge.pipelines.modes._retro_network import RetroNetwork
from ragauge.pipelines.modes._retro_parts import PARTS, split
from ragauge.pipelines.modes.base import Checkpoint


def export(checkpoint: Checkpoint, name: str, folder: Path) -> None:
    """Write the graphs of RETRO, and their origin; `name` is that of its weights."""
    export_network(make_network(checkpoint), folder)
    write_manifest(folder, {"model": name, **_origin(checkpoint)})


def export_network(model: RetroNetwork, folder: Path) -> None:
    """Write `lower.onnx`, `encoder.onnx` and `upper.onnx`."""
    for name, part in split(model).items():
        names, examples, shapes = zip(*part.inputs, strict=True)
        path = folder / f"{name}.onnx"
        inputs = [*chain.from_iterable(names)]
        write_graph(part, path, examples, shapes, inputs, part.outputs)


def load_exported(checkpoint: Checkpoint) -> OnnxRetroLM:
    """Load what `export` wrote.

    Raises:
        UserError: it is incomplete or of another origin.
    """
    assert checkpoint.exported is not None
    check_origin(checkpoint.exported, _origin(checkpoint))
    paths = {name: checkpoint.exported / f"{name}.onnx" for name in PARTS}
    return OnnxRetroLM(paths, checkpoint.tokenizer, checkpoint.device, checkpoint.threads)


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "model_sha256": checkpoint.sha256,
        "vocabulary": checkpoint.vocabulary,
        "dtype": checkpoint.dtype,
    }


class OnnxRetroLM(OnnxModel):
    @property
    def vocab(self) -> int:
        return self.graphs["upper"].session.get_outputs()[0].shape[1]

    @cached_property
    def nothing(self) -> dict[str, Tensor]:
        """The inputs of `upper` where there are no neighbours: one key, which is not read."""
        upper = self.graphs["upper"]
        encoder = self.graphs["encoder"]
        heads, dim = next(iter(self.graphs["lower"].past_sizes.values()))
        memory = {name: encoder.empty(name, heads, 1, dim).zero_() for name in encoder.outputs}
        return memory | {
            "reads": upper.tensor("reads", [0.0]),
            "places": upper.tensor("places", [0]),
        }

    def open(self, tokens: int, neighbour_tokens: int = 0) -> RetroReader:
        """See `NeighbourModel.open`; slots grow with the sequence, whatever its `tokens`."""
        return RetroReader(self)
