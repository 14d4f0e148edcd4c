"""RETRO in ONNX Runtime gives torch's logits, tokens and trace, with neighbours and without,
whatever the lengths.
"""

import json

import pytest
import torch

from ragauge.cli._main import main
from ragauge.errors import UserError
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.decoding import generate
from ragauge.pipelines.modes import _retro as weights
from ragauge.pipelines.modes import _retro_onnx
from ragauge.pipelines.modes._retro_onnx import load_exported
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.modes.retro import OwnEncoder
from ragauge.pipelines.sources import NoNeighbours, PrefetchedRetrieval, RetrievalOptions
from ragauge.pipelines.windows import Windows
from retro_parts import OF_ALL_LENGTHS as DOCUMENTS
from retro_parts import TINY, ExactRetriever, logits_of, tokens
from retro_released import read_released, scored, write_beside_database

IDS = tokens(300, 1)
READING = ("read", "decode", "neighbours")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A released checkpoint beside a database in its tokens and what `ragauge piperag export` made
    of both.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("retro")
        patch.setenv("RAGAUGE_HOME", str(folder / "home"))
        write_beside_database(folder)
        given = ["--model", f"path:{folder / 'released'}", "--database", str(folder / "own")]
        assert (
            main(
                ["piperag", "export", "--mode", "retro", *given, "--out", str(folder / "exported")]
            )
            == 0
        )
        yield folder


def checkpoint(root, exported):
    source = f"path:{root / 'released'}"
    vocabulary = Database(root / "own").vocabulary
    sha256 = OwnEncoder().origin(Checkpoint(source))[1]
    return Checkpoint(source, sha256, exported=exported, threads=1, vocabulary=vocabulary)


@pytest.fixture(scope="module")
def lm(root):
    return load_exported(checkpoint(root, root / "exported"))


@pytest.fixture(scope="module")
def torch_lm(root):
    return read_released(root)


@pytest.mark.parametrize("windows", [Windows(), Windows(16, stale=True)], ids=str)
@pytest.mark.parametrize("step", [7, 300])
def test_logits_are_torchs(lm, torch_lm, windows, step):
    logits = [logits_of(model, IDS, windows, DOCUMENTS, step)[0] for model in (lm, torch_lm)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("asks", [False, True])
def test_generation_gives_the_same_tokens_and_trace(lm, torch_lm, asks):
    windows = Windows(16, stale=True)
    searched = RetrievalOptions(ExactRetriever(DOCUMENTS))
    found = []
    for model in (lm, torch_lm):
        reader = model.open(160)
        source = PrefetchedRetrieval(searched, windows, reader.note) if asks else NoNeighbours()
        with model.tracing() as trace:
            ids = generate(reader, IDS[:70], 160, source, windows)
        source.close()
        found.append(
            (
                ids,
                [
                    (c.stage, c.lengths, c.past, c.steps, c.logits)
                    for c in trace
                    if c.stage in READING
                ],
            )
        )
    assert found[0] == found[1]


def test_scores_by_the_command_line_are_torchs(root, tmp_path, capsys):
    exported = ["--onnx", str(root / "exported")]
    plain = scored(root, tmp_path / "torch.jsonl")
    assert scored(root, tmp_path / "onnx.jsonl", *exported) == pytest.approx(plain, abs=1e-4)
    run = f"piperag run --mode retro --database {root / 'own'} --schedule random".split()
    run += ["--task", "generate", "--tokens", "100", "--limit", "1", "--seed", "1"]
    assert main([*run, *exported, "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "not random, seed 1: exported from" in capsys.readouterr().err


def test_random_weights_are_exported_under_their_seed(root, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "PAPER", TINY)
    monkeypatch.setattr(_retro_onnx, "export_network", lambda *_: None)
    given = ["--mode", "retro", "--database", str(root / "own"), "--seed", "1"]
    assert main(["piperag", "export", *given, "--out", str(tmp_path / "x")]) == 0
    assert (
        json.loads((tmp_path / "x/ragauge-asset.json").read_bytes())["model_sha256"]
        == "random, seed 1"
    )


def test_a_part_that_is_missing_is_named(root, tmp_path):
    copy = checkpoint(root, tmp_path)
    with pytest.raises(UserError, match="has no manifest; `ragauge piperag export`"):
        load_exported(copy)
    for name in ("ragauge-asset.json", "lower.onnx", "lower.onnx.data"):
        (tmp_path / name).write_bytes((root / "exported" / name).read_bytes())
    with pytest.raises(UserError, match=r"encoder.onnx is missing; export it again"):
        load_exported(copy)
