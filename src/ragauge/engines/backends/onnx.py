"""ONNX Runtime: the text level only, from a graph that is exported on first use; in float16 on a GPU alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cost.hardware import ONNX_DTYPES
from ragauge.engines.protocol import ANSWERING, Capabilities
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.engines.onnx.engine import OnnxEngine

CAPABILITIES: Capabilities = ANSWERING

DTYPES = ("float32",)  # what `dtype: auto` may be


def load(source: str, *, dtype: str, device: str, threads: int | None, max_context: int | None) -> OnnxEngine:
    """The decoder and tokenizer of a source. Its graph is kept among the assets (4 or 2 bytes per parameter).

    Raises:
        UserError: a dtype that the device does not run; whatever the torch decoder raises on the source.
    """
    if dtype not in ONNX_DTYPES[device]:
        known = " or ".join(map(repr, ONNX_DTYPES[device]))
        raise UserError(f"engine 'onnx' requires dtype {known} on device {device!r}, not {dtype!r}")
    from ragauge import assets
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.engines.checkpoint import read_shape
    from ragauge.engines.onnx.engine import OnnxEngine
    from ragauge.engines.onnx.graph import OnnxDecoder
    from ragauge.io.graphs import open_session

    folder = assets.resolve(source)
    path = _exported(source, folder, dtype) / "decoder.onnx"
    session = open_session(path, threads, cuda=device != "cpu")
    return OnnxEngine(OnnxDecoder(session), read_shape(folder, max_context), load_tokenizer(folder))


def _exported(source: str, folder: Path, dtype: str) -> Path:
    """The folder of the graph, written once for every state of the weights and of the exporting code."""
    from ragauge import assets
    from ragauge.assets import store
    from ragauge.engines.lm import load_lm
    from ragauge.engines.onnx.graph import export
    from ragauge.io.digest import digest

    weights = assets.describe(source)["sha256"]
    home = store.Store(store.home())
    target = home.folder("onnx", folder.name, weights, dtype, digest("ragauge.engines.onnx.graph"))

    def write(into: Path) -> dict[str, Any]:
        decoder = load_lm(source, dtype=dtype).decoder
        export(decoder, into / "decoder.onnx")
        return {"source": source, "sha256": weights}

    return home.build(target, write)
