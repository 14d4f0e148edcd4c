"""RETRO in ONNX Runtime gives torch's logits, tokens and trace, with neighbours and without, whatever the lengths."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ragauge.cli import main
from ragauge.errors import UserError
from ragauge.generation.decoding import generate
from ragauge.generation.modes import Checkpoint
from ragauge.generation.modes import _retro as weights
from ragauge.generation.modes._retro import RetroLM, random_network
from ragauge.generation.modes._retro_onnx import OnnxRetroLM, load_exported
from ragauge.generation.sources import NoNeighbours, PrefetchedRetrieval, RetrievalOptions
from ragauge.generation.windows import Windows
from ragauge.io.records import SequenceRecord, read_kind
from retro_parts import OF_ALL_LENGTHS as DOCUMENTS
from retro_parts import TINY, ExactRetriever, logits_of, tokens, write_database

IDS = tokens(300, 1)
READING = ("read", "decode", "neighbours")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database beside what `ragauge piperag export` made of a tiny RETRO for its tokenizer."""
    root = write_database(tmp_path_factory.mktemp("retro"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "PAPER", TINY)
        of_database = ["--mode", "retro", "--database", str(root / "db")]
        assert main(["piperag", "export", *of_database, "--out", str(root / "exported")]) == 0
        yield root


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "exported"


@pytest.fixture(scope="module")
def lm(folder: Path) -> OnnxRetroLM:
    return load_exported(Checkpoint(exported=folder, sha256="random, seed 0", vocabulary=259, threads=1))


@pytest.fixture(scope="module")
def torch_lm() -> RetroLM:
    return RetroLM(random_network(TINY))


@pytest.mark.parametrize("windows", [Windows(), Windows(16, stale=True)], ids=str)
@pytest.mark.parametrize("step", [7, 300])
def test_logits_are_torchs(lm: OnnxRetroLM, torch_lm: RetroLM, windows: Windows, step: int) -> None:
    logits = [logits_of(model, IDS, windows, DOCUMENTS, step)[0] for model in (lm, torch_lm)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)


def test_neighbours_that_are_gone_are_not_attended_to(lm: OnnxRetroLM, torch_lm: RetroLM) -> None:
    logits = []
    for model in (lm, torch_lm):
        reader = model.open(100)
        reader.read(IDS[:64])
        reader.attach([DOCUMENTS[0][:128], DOCUMENTS[1][:6]])
        reader.read(IDS[64:70])
        reader.attach([])
        logits.append(reader.read(IDS[70:90]))
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("asks", [False, True])
def test_generation_gives_the_same_tokens_and_trace(lm: OnnxRetroLM, torch_lm: RetroLM, asks: bool) -> None:
    windows, searched, found = Windows(16, stale=True), RetrievalOptions(ExactRetriever(DOCUMENTS)), []
    for model in (lm, torch_lm):
        reader = model.open(160)
        source = PrefetchedRetrieval(searched, windows, reader.note) if asks else NoNeighbours()
        with model.tracing() as trace:
            ids = generate(reader, IDS[:70], 160, source, windows)
        source.close()
        found.append((ids, [(c.stage, c.lengths, c.past, c.steps, c.logits) for c in trace if c.stage in READING]))
    assert found[0] == found[1]


def test_generation_by_the_command_line_is_torchs(
    root: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_database, exported = ["--mode", "retro", "--database", str(root / "db")], str(folder)
    run = ["piperag", "run", *of_database, "--schedule", "random", "--task", "generate", "--tokens", "100"]
    run += ["--limit", "2"]
    written = []
    for engine in ([], ["--onnx", exported]):
        out = tmp_path / f"{len(engine)}.jsonl"
        assert main([*run, *engine, "--threads", "1", "--out", str(out)]) == 0
        written.append([record.generated for record in read_kind(out, SequenceRecord)])
    assert written[0] == written[1]
    assert main([*run, "--onnx", exported, "--seed", "1", "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "model_sha256 is random, seed 0, not random, seed 1: exported from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "retro"], "--mode retro: requires --database"),
        (["--mode", "retro", "--database", "x", "--adapters", "y"], "--adapters: not valid with mode 'retro'"),
        (["--weights", "x"], "--weights: not valid with mode 'joint'"),
        (["--mode", "cross_attention"], "--mode cross_attention: cannot be exported to ONNX"),
        (["--adapters", "nowhere"], "--adapters: no such file: nowhere"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["piperag", "export", *options, "--out", "x"]) == 2
    assert message in capsys.readouterr().err


def test_a_part_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"about.json: cannot be read"):
        load_exported(Checkpoint(exported=tmp_path, sha256="random, seed 0", vocabulary=259))
    for name in ("about.json", "lower.onnx", "lower.onnx.data"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(UserError, match=r"encoder.onnx: no such file"):
        load_exported(Checkpoint(exported=tmp_path, sha256="random, seed 0", vocabulary=259))
