"""RETRO and PipeRAG's windows give what their released code gave on a tiny random model."""

import json

import numpy as np
import pytest
import torch

from ragauge.assets import retro
from ragauge.pipelines.decoding import read_through
from ragauge.pipelines.modes._retro import RetroLM, read_folder
from ragauge.pipelines.performance import GenerationModel
from ragauge.pipelines.retrieval.retriever import (
    LinearTime,
    Neighbour,
    Neighbours,
    fit_line,
    largest_nprobe,
)
from ragauge.pipelines.schedules.base import SequenceInputs
from ragauge.pipelines.schedules.retrieve_once import RetrieveOnce
from ragauge.pipelines.sources import NeighbourSource
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR, Windows
from retro_released import Released

PADDING = 0
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(scope="module")
def values(released_folder):
    return np.load(released_folder / "retro.npz", allow_pickle=False)


@pytest.fixture(scope="module")
def lm(released_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    retro.convert(released_folder / "tiny_retro/model.ckpt", folder)
    return RetroLM(read_folder(folder))


@pytest.fixture(scope="module")
def plain(released_folder):
    """The network that other tests compare random checkpoints with."""
    folder = released_folder / "tiny_retro"
    state = torch.load(folder / "model.ckpt", weights_only=True)["state_dict"]
    return Released(state, json.loads((folder / "retro.json").read_text()))


class Given(NeighbourSource):
    """The neighbours of each window, padded; those of the last one stay."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def neighbours(self, window, ids, more):
        return without_padding(self.found[window]) if window < len(self.found) else None


def without_padding(neighbours):
    return [[token for token in text if token != PADDING] for text in neighbours.tolist()]


def logits(lm, ids, source, interval):
    parts = read_through(lm.open(len(ids)), ids, len(ids), source, Windows(interval))
    return torch.cat([part for *_, part in parts]).numpy()


class OneAnswer:
    """Finds the same neighbours for every query."""

    def __init__(self, found):
        rows = [
            Neighbour(i, 0.0, i, text[:CHUNK], text[CHUNK:])
            for i, text in enumerate(found.tolist())
        ]
        self.found = Neighbours(rows, 1, {})

    def search(self, queries):
        return [self.found]


@pytest.mark.parametrize(
    ("key", "interval"),
    [
        ("norlund", 64),
        *((f"piperag/i{m}/L{length}", m) for m in (16, 64) for length in (192, 205)),
    ],
)
def test_logits_are_the_released_ones(lm, plain, values, key, interval):
    expected = values[f"{key}/logits"]
    ids = values["ids"].tolist()[: len(expected)]
    found = values[f"{key}/neighbours"]
    given = logits(lm, ids, Given(found), interval)
    np.testing.assert_allclose(given, expected, **CLOSE)
    np.testing.assert_allclose(plain.logits(ids, found.tolist(), interval), expected, **CLOSE)


@pytest.mark.parametrize("interval", [16, 64])
def test_one_retrieval_is_scored_as_released_where_each_window_encodes_it(lm, values, interval):
    expected = values[f"piperag/i{interval}/once/logits"]
    ids = values["ids"].tolist()[: len(expected)]
    searcher = OneAnswer(values[f"piperag/i{interval}/once/neighbours"])
    anew, once = (
        logits(
            lm,
            ids,
            RetrieveOnce(interval=interval, encoding=encoding).source(
                SequenceInputs(lambda call: None, "0", -1, searcher)
            ),
            interval,
        )
        for encoding in ("every_window", "once")
    )
    np.testing.assert_allclose(anew, expected, **CLOSE)
    # encoded once, only the first window is the same
    same = Windows(interval).first(1)
    np.testing.assert_allclose(once[:same], expected[:same], **CLOSE)
    assert np.abs(once[same:] - expected[same:]).max() > 0.1


def test_the_released_client_differs_in_two_places_alone(lm, values):
    """Its query's last token sees no neighbours, and each decoded token takes place 0 in chunked
    attention; the released scoring, and this project, count from the query's last token.
    """
    ids = values["ids"].tolist()
    reader = lm.open(len(ids))
    first = reader.read(ids[:CHUNK])
    np.testing.assert_allclose(first.numpy(), values["inference/first64"], **CLOSE)
    found = without_padding(values["inference/neighbours"])
    with torch.inference_mode():
        reader.encode(found)
    decoded = []
    for token in ids[CHUNK : CHUNK + len(values["inference/logits"])]:
        reader._since = reader.length
        decoded.append(reader.read([token])[0].numpy())
    np.testing.assert_allclose(decoded, values["inference/logits"], **CLOSE)


@pytest.mark.parametrize("interval", [16, 64])
@pytest.mark.parametrize("kind", ["fresh", "stale"])
def test_neighbours_are_cut_as_released(values, interval, kind):
    lengths = values["dataset/doc_lengths"]
    documents = np.split(values["dataset/docs"], np.cumsum(lengths)[:-1])
    chunks = [
        (number, start)
        for number, length in enumerate(lengths)
        for start in range(0, length, CHUNK)
    ]
    windows = Windows(interval, stale=kind == "stale")
    found = values[f"dataset/i{interval}/nprobe4/I"]  # of each window's own query
    cut = []
    for window in range(len(found)):
        for chunk in found[windows.query(window).start // interval]:
            number, start = chunks[chunk]
            text = documents[number][start : start + (1 + windows.continuation) * CHUNK]
            part = text[windows.part(window)]
            cut.append(np.pad(part, (0, NEIGHBOUR - len(part))))
    assert np.array_equal(
        np.reshape(cut, (len(found), -1, NEIGHBOUR)), values[f"dataset/i{interval}/{kind}"]
    )


def test_the_performance_model_chooses_as_released(values):
    """The release fits lists to milliseconds, here milliseconds are fitted to lists: by least
    squares the lines differ a little, and so may a choice, by one list.
    """
    nprobes = values["perf/nprobes"]
    search = fit_line(list(zip(nprobes.tolist(), values["perf/latency_ms"] / 1e3, strict=True)))
    # a token after n others takes 0.8 + n / 1,000 ms, and what is not searching 3.5 ms
    model = GenerationModel(LinearTime(0.8e-3, 1e-6), LinearTime(0.0, 0.0))
    chosen = [
        [
            largest_nprobe(
                model.budget_s(length, Windows(interval, stale=True), 0, 3.5e-3),
                search,
                range(1, int(nprobes[-1]) + 1),
            )
            for interval in (8, 16, 32, 64)
        ]
        for length in (64, 128, 256, 512, 960)
    ]
    assert np.abs(np.array(chosen) - values["perf/nprobe"]).max() <= 1
