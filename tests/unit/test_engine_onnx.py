"""The engine onnx gives what the torch decoder gives, as far as the text level goes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ragauge import engines, methods
from ragauge.assets import store
from ragauge.engines import Engine, Limits
from ragauge.engines.backends import onnx as backend
from ragauge.errors import UserError
from ragauge.retrieval.embed import OnnxEncoder
from tiny_checkpoint import write_checkpoint

PROMPT = [20 + i * 37 % 200 for i in range(300)]  # more than one piece


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Engine]:
    """The torch decoder and the exported one."""
    home = tmp_path_factory.mktemp("home")
    source = f"path:{write_checkpoint(home / 'tiny')}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAGAUGE_HOME", str(home))
        return engines.load(source), engines.load(source, "onnx", threads=1)


def test_tokens_and_log_probabilities_are_those_of_torch(both: tuple[Engine, Engine]) -> None:
    for limits in (Limits(12, ignore_stop=True), Limits(12), Limits(12, stop=("e",))):
        torch, onnx = (engine.respond(PROMPT, limits, logp=True) for engine in both)
        assert onnx.ids == torch.ids
        assert onnx.logp == pytest.approx(torch.logp, abs=1e-4)
        assert len(onnx.token_s) == len(onnx.ids)


def test_calls_are_traced_alike(both: tuple[Engine, Engine]) -> None:
    traces = []
    for engine in both:
        with engine.tracing() as trace:
            engine.respond(PROMPT, Limits(5, ignore_stop=True), stage="naive")
        traces.append([(call.stage, call.lengths, call.past, call.steps) for call in trace])
        assert engine.peak_cache_bytes > 0
    assert traces[0] == traces[1]


def test_opened_engines_can_what_their_files_say(both: tuple[Engine, Engine]) -> None:
    lm, onnx = both
    opened = {"torch": lm, "onnx": onnx, "shapes": engines.load("mpt-7b-instruct", "shapes")}
    assert {name: engine.capabilities for name, engine in opened.items()} == {
        name: engines.capabilities(name) for name in opened
    }


def test_it_reads_whole_prompts_alone(both: tuple[Engine, Engine]) -> None:
    _, onnx = both
    assert methods.make("naive").refusal(onnx) is None
    assert "key-value caches" in (methods.make("prompt_cache").refusal(onnx) or "")
    with pytest.raises(UserError, match="context"):
        onnx.respond([20] * (onnx.max_context + 1), Limits(1))


def test_another_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="engine 'onnx' requires dtype 'float32' on device 'cpu', not 'bfloat16'"):
        engines.load(f"path:{tmp_path}", "onnx", dtype="bfloat16")


def test_graphs_are_known_by_content_not_by_a_folders_last_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the decoder and of an encoder: two that are called alike are two, and a copy is the same."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    build = store.Store.build

    def made(self: store.Store, target: Path, make: Any) -> Path:
        if target.parent.name == "onnx":
            raise MadeError(target)
        return build(self, target, make)

    monkeypatch.setattr(store.Store, "build", made)
    one = write_checkpoint(tmp_path / "a" / "model")
    copy = Path(shutil.copytree(one, tmp_path / "b" / "model"))
    other = write_checkpoint(tmp_path / "c" / "model", num_hidden_layers=1)

    def graph(folder: Path) -> Path:
        with pytest.raises(MadeError) as found:
            backend.load(f"path:{folder}", dtype="float32", device="cpu", threads=1, max_context=None)
        return found.value.target

    def encoders(folder: Path) -> Path:
        with pytest.raises(MadeError) as found:
            OnnxEncoder(f"path:{folder}")
        return found.value.target

    for place in (graph, encoders):
        assert place(one) == place(copy) != place(other)


class MadeError(Exception):
    """What is about to be made."""

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self.target = target
