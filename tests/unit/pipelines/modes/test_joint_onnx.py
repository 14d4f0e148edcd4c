"""ONNX Runtime gives torch's logits and tokens, with neighbours and without, whatever the lengths."""

import threading

import numpy as np
import pytest
import torch

import tiny_models
from ragauge.cli._main import main
from ragauge.engines.loading import load_lm, random_lm
from ragauge.engines.onnx.graph import export_decoder
from ragauge.engines.passes import NotFiniteError
from ragauge.errors import UserError
from ragauge.pipelines.decoding import generate
from ragauge.pipelines.modes._joint import Adapters, JointDecoder
from ragauge.pipelines.modes._joint_onnx import OnnxJointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.sources import (
    NoNeighbours,
    PrefetchedRetrieval,
    RandomNeighbours,
    RetrievalOptions,
)
from ragauge.pipelines.windows import Windows
from retro_parts import OF_ALL_LENGTHS as DOCUMENTS
from retro_parts import ExactRetriever, logits_of, tokens, write_database

IDS = tokens(300, 1)
READING = ("read", "decode", "neighbours", "neighbours_ahead")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A decoder with adapters that do something, and what `ragauge piperag export` made of both,
    beside a database.
    """
    # of several layers: the families below
    root = write_database(tmp_path_factory.mktemp("onnx"), num_hidden_layers=1)
    lm = load_lm(str(root / "model"), threads=1)
    made = Adapters(lm.decoder.weights)
    with torch.no_grad():
        for offset in made.offset:
            offset.fill_(0.4)
    made.save(root / "adapters.safetensors")
    given = ["--model", str(root / "model"), "--adapters", str(root / "adapters.safetensors")]
    assert main(["piperag", "export", *given, "--out", str(root / "exported")]) == 0
    return root


@pytest.fixture(scope="module")
def torch_lm(folder):
    return load_lm(str(folder / "model"), threads=1)


@pytest.fixture(scope="module")
def lm(folder):
    return opened(folder)


def opened(folder):
    return OnnxJointDecoder(Checkpoint(exported=folder / "exported", threads=1))


@pytest.mark.parametrize("step", [7, 300])
def test_logits_are_torchs(torch_lm, folder, step):
    models = opened(folder), JointDecoder(torch_lm)
    logits = [logits_of(model, IDS, Windows(16), DOCUMENTS, step)[0] for model in models]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)


def test_heads_and_widths_by_layer_are_exported(tmp_path):
    decoder = tiny_models.tiny_lm(tiny_models.FAMILIES["openelm"])
    export_decoder(decoder.decoder, tmp_path / "decoder.onnx")
    models = (
        OnnxJointDecoder(Checkpoint(exported=tmp_path, threads=1)),
        JointDecoder(decoder),
    )
    logits = [logits_of(model, IDS[:120], Windows(16), DOCUMENTS)[0] for model in models]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)


class LaterRetriever(ExactRetriever):
    """Its prefetched searches end after the first window's neighbours were read, so that chance does
    not decide which thread finds what the other one has read.
    """

    def follow(self, reader):
        attach = reader.attach
        self.has_read = threading.Event()

        def attached(neighbours):
            attach(neighbours)
            self.has_read.set()

        reader.attach = attached

    def search(self, queries):
        if threading.current_thread().name.startswith("prefetch"):
            assert self.has_read.wait(60)
        return super().search(queries)


def test_generation_gives_the_same_tokens_and_trace(torch_lm, lm):
    windows = Windows(16, stale=True)
    searcher = LaterRetriever(DOCUMENTS)
    for make in (
        lambda reader: NoNeighbours(),
        lambda reader: RandomNeighbours(searcher, np.random.default_rng(0)),
        lambda reader: PrefetchedRetrieval(RetrievalOptions(searcher), windows, reader.note),
        lambda reader: PrefetchedRetrieval(
            RetrievalOptions(searcher), windows, reader.note, reader.prepare
        ),
    ):
        found = []
        plain = JointDecoder(torch_lm)
        for traced, reader in ((lm, lm.open(160, 256)), (torch_lm, plain.open(160, 256))):
            source = make(reader)
            searcher.follow(reader)
            with traced.tracing() as trace:  # type: ignore[attr-defined]
                ids = generate(reader, IDS[:70], 160, source, windows)
            source.close()
            calls = [
                (c.stage, c.lengths, c.past, c.steps, c.logits) for c in trace if c.stage in READING
            ]
            found.append((ids, sorted(calls)))
        assert found[0] == found[1]


def test_logits_that_are_not_finite_end_a_response(lm):
    reader = lm.open(20)
    logits = reader.read(IDS[:5])[-1]
    assert len(reader.decode(logits, 3)) == 3
    with pytest.raises(NotFiniteError):
        lm.open(20).decode(torch.full_like(logits, float("nan")), 3)


def test_what_cannot_be_done_is_said(lm, tmp_path):
    half = random_lm(tiny_models.LLAMA, dtype="bfloat16").decoder
    assert half is not None
    with pytest.raises(UserError, match="requires a decoder in float32"):
        export_decoder(half, tmp_path / "x.onnx")
    with pytest.raises(UserError, match="requires a decoder with rotary positions"):
        export_decoder(random_lm(tiny_models.FAMILIES["bloom"]).decoder, tmp_path / "x.onnx")
    with pytest.raises(UserError, match="no such file"):
        OnnxJointDecoder(Checkpoint(exported=tmp_path))
    (tmp_path / "decoder.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="ONNX Runtime cannot read it"):
        OnnxJointDecoder(Checkpoint(exported=tmp_path))
