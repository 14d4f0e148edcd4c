"""What pipelines cost: closed forms against torch's counter, traces against those of a real reader."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ragauge.cli import _main
from ragauge.cost.trace import Call
from ragauge.pipelines.cost import neighbour_macs, report, retro_calls, token_macs
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._retro import RetroLM, random_network
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.sizes import PAPER
from ragauge.pipelines.windows import CHUNK
from retro_parts import TINY, ExactRetriever, record_of, specified, tokens


def counted(run):
    """MACs by torch's counter, which knows attention as its matrix products."""
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),
        torch.inference_mode(False),
    ):
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize(
    "sizes", [TINY, replace(TINY, cross=(0, 2, 3), encoder_layers=3, encoder_cross=(0, 2))]
)
@pytest.mark.parametrize("lengths", [(128, 128), (128, 100), (64,)])
@torch.no_grad()
def test_the_closed_forms_are_what_torch_counts(sizes, lengths):
    reader = RetroLM(random_network(sizes)).open(200)
    ids = tokens(200, 3)
    forward = reader.forward
    assert counted(lambda: forward(ids[:63])) == token_macs(sizes, 63, 0)
    reader.attach([tokens(length, length) for length in lengths])
    found = counted(lambda: forward(ids[63:64]))
    assert found == neighbour_macs(sizes, lengths) + token_macs(sizes, 1, 63, sum(lengths))
    assert counted(lambda: forward(ids[64:74])) == token_macs(sizes, 10, 64, sum(lengths))
    steps = counted(lambda: [forward(ids[i : i + 1]) for i in range(74, 80)])
    assert steps == token_macs(sizes, 1, 74, sum(lengths), steps=6)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("no_retrieval", "once"),
        ("retrieve_once", "once"),
        ("retrieve_once", "every_window"),
        ("retro", "once"),
        ("retro_plus", "once"),
        ("piperag", "once"),
    ],
)
@pytest.mark.parametrize("task", ["perplexity", "generate"])
def test_the_calls_are_those_of_a_real_reader(kind, encoding, task):
    interval = CHUNK if kind == "retro" else 32
    retriever = ExactRetriever([tokens(600, 2), tokens(700, 4)])
    options = {"tokens": 200, "encoding": encoding}
    chosen = specified(kind, interval, task, mode="retro", weights="random", **options)
    pipeline = Pipeline(RetroLM(random_network(TINY)), chosen, retriever, retriever)
    trace = [
        Call.from_json(call)
        for call in record_of(pipeline, EvaluationStretch("0", 0, tuple(tokens(200, 7)))).trace
    ]
    entry = PipelineSettings(schedule=kind, task=task, interval=interval, **options)
    planned = covered(retro_calls(entry, TINY))
    real = covered(trace)
    assert not real - planned
    assert sum((planned - real).values()) <= 1, "the last token is written and not read"
    found = [call for call in trace if call.stage == "neighbours"]
    assert len(found) == sum(call.stage == "neighbours" for call in retro_calls(entry, TINY))
    assert report(entry, TINY)["retrievals"] == sum(call.stage == "retrieval" for call in trace) + (
        sum(call.stage == "prefetch" for call in trace)
    )


def covered(trace):
    """How often the token at each place was read."""
    calls = [call for call in trace if call.stage in ("read", "decode")]
    return Counter(call.past[0] + i for call in calls for i in range(call.lengths[0] * call.steps))


def test_a_report_sums_the_stages_and_compares_with_no_retrieval():
    entry = PipelineSettings(schedule="piperag", task="generate", interval=32, tokens=1024)
    made = report(entry, PAPER)
    assert made["flop"] == sum(made["flop_by_stage"].values())
    assert made["retrievals"] == (1024 - CHUNK) // 32 + 1
    assert made["over_no_retrieval"] > 1
    plain = report(entry.model_copy(update={"schedule": "no_retrieval"}), PAPER)
    assert plain["over_no_retrieval"] == 1
    assert plain["retrievals"] == 0
    weights = 12 * (4 * 1536**2 + 3 * 1536 * 6144) + 1536 * 32128
    assert plain["flop"] == pytest.approx(2 * 1024 * weights, rel=0.06)  # besides attention


def test_a_search_is_bounded_on_the_papers_server(capsys):
    """By hand: 16,384 centroids of 1,536 B and 64 / 16,384 of 3e9 vectors of 72 B, at 281.6 GB/s;
    16 retrievals.
    """
    command = ["cost", "--model", "retro", "--schedule", "retro", "--set", "nprobe=64"]
    assert _main.main([*command, "--search-machine", "xeon-8259cl", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    seconds = (25_165_824 + 843_750_000) / 281.6e9 + 0.001
    assert made["search"]["retrieval_at_least_s"] == pytest.approx(seconds)
    assert made["search"]["retrievals_at_least_s"] == pytest.approx(made["retrievals"] * seconds)
    assert made["search"]["fits_memory"]
    assert made["search"]["index_bytes"] == pytest.approx(216e9, rel=1e-3)
