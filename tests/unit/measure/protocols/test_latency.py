"""The latency protocol on a tiny decoder."""

import json
import random
import time
from dataclasses import replace

import pytest

from house_article import long_lm, prompt_of
from ragauge.config.protocols import LatencySettings
from ragauge.cost import tokens
from ragauge.cost.flop import flop
from ragauge.cost.machine import Load
from ragauge.cost.shape import Shape
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.measure.gpu_load import watch
from ragauge.measure.protocols import latency
from ragauge.measure.timing import Bench
from ragauge.methods.base.making import make
from ragauge.methods.base.method import plain_row, read_and_generate
from ragauge.methods.prompts import Prompt
from ragauge.methods.rankers.dense import Encoder
from ragauge.results.times import LatencyTimes, Trial

SHAPE = Shape("llama", 64, 32, (4,) * 2, (2,) * 2, 8, (64,) * 2, True, 256, "rope")
RATE = {"median": 1.0, "low": 1.0, "high": 1e9, "n": 1}
MACHINE = {"bandwidth_bytes_per_s": RATE, "matmul_flop_per_s": {"float32": RATE}}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    """A trial that another process disturbed is repeated at once."""
    monkeypatch.setattr(latency, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def lm():
    return random_lm(SHAPE)


@pytest.fixture(scope="module")
def prompt():
    return Prompt(**tokens.random_segments(tokens.TokenCounts(4, (9, 7, 8), 5, 3), SHAPE.vocab))


def _run(lm, prompts, seed=0, **options):
    variants = {"naive": make("naive"), "k1": make("superposition", top_k=1)}
    bench = Bench(lm, prompts)
    return latency.measure_latency(variants, bench, settings(**options), machine=MACHINE, seed=seed)


def settings(**options):
    stated = {"new_tokens": 3, "trials": 4, "allow_load": True} | options
    return LatencySettings(methods=["naive", "k1"], dataset="random tokens", **stated)


def test_every_variant_has_every_trial_with_its_costs(lm, prompt):
    result = _run(lm, [prompt])
    assert result.protocol.cuda_graphs is None  # on a CPU there are none
    assert result.load.gpu is None
    for name in ("naive", "k1"):
        for state in ("nothing", "set"):
            rows = [row for row in result.rows if (row.variant, row.state) == (name, state)]
            assert [row.trial for row in rows] == [0, 1, 2, 3]
            assert all(0 < row.first_token_s <= row.total_s for row in rows)
            assert all(0 < sum(row.stages.values()) <= row.total_s for row in rows)
            assert all(row.flop > 0 and row.roofline_s > 0 for row in rows)
            is_prepared = state == "set"
            assert all((row.preparation_s > 0) == is_prepared for row in rows)
            assert all((row.preparation_bytes > 0) == is_prepared for row in rows)
    assert list(rows[0].stages) == ["query", "task", "decode"]
    # superposition's positions depend on the set: before it is known, nothing of it is ready
    apart, together = result.states["documents"], result.states["set"]
    assert list(result.states) == ["documents", "set"]
    assert result.usable == {"naive": "set", "k1": "set"}
    measured = {s: result.measured_state("k1", s) for s in ("nothing", "documents", "set")}
    assert measured == {"nothing": "nothing", "documents": "nothing", "set": "set"}
    assert len(result.seconds("naive", state="nothing")) == 4  # a state that is not asked for
    assert together.summary["k1"]["total_s"].n == 4
    assert list(together.stages["k1"]) == ["query", "task", "decode"]
    assert list(apart.stages["k1"]) == ["preamble", "documents", "query", "task", "decode"]
    assert {*apart.gap, *together.gap} == {"k1"}
    assert result.protocol.tokens == {
        "preamble": 4,
        "documents": [9, 7, 8],
        "query": 5,
        "task": 3,
    }
    assert LatencyTimes.model_validate_json(json.dumps(result.to_json())) == result


def test_a_plain_prompt_whose_list_was_read_costs_its_question(lm, prompt):
    rows = _run(lm, [prompt]).rows
    cached = [row for row in rows if (row.variant, row.state) == ("naive", "set")]
    cache = lm.new_cache(prompt.total_tokens + 3)
    beginning = prompt.plain(prompt.documents)[: -len(prompt.ending)]
    lm.extend(cache, [plain_row(beginning)], stage="documents")
    assert {row.preparation_bytes for row in cached} == {cache.bytes}
    with lm.tracing() as trace:
        row = plain_row(prompt.ending, len(beginning))
        read_and_generate(lm, cache, row, Limits(3, ignore_stop=True))
    assert {row.flop for row in cached} == {flop(trace, SHAPE)}


def test_no_clock_has_the_embeddings_of_documents(encoder, monkeypatch):
    """They are an index, made before any question, whatever was read before this one."""
    embed = Encoder.embed

    def slowly(self, texts, query=False):
        time.sleep(0.0 if query else 0.3)
        return embed(self, texts, query=query)

    monkeypatch.setattr(Encoder, "embed", slowly)
    reader = long_lm()
    prompt = prompt_of(*(("", f"Tea {i} grows. It is green.") for i in range(4)))
    options = {"encoder": encoder}
    variants = {
        "pruning": make("sentence_pruning", **options, threshold=0.0),
        "dense": make("dense", **options),
        "uncached": make("dense", **options, path_caching=False),
    }
    bench = Bench(reader, [prompt])
    result = latency.measure_latency(variants, bench, settings(trials=2), machine=MACHINE)
    assert {row.state for row in result.rows} == {"nothing", "documents"}
    assert all(0 < row.first_token_s <= row.total_s < 0.3 for row in result.rows)
    assert all(0 <= row.preparation_s < 0.3 for row in result.rows)
    assert all(sum(row.stages.values()) <= row.total_s for row in result.rows)


@pytest.mark.parametrize("states", [["set"], ["nothing", "documents"], ["documents", "nothing"]])
def test_the_states_of_a_section_are_timed_in_its_order(lm, prompt, states):
    result = _run(lm, [prompt], states=states)
    assert (list(result.states), result.default_state) == (states, states[0])
    assert {row.state for row in result.rows} == ({"set"} if states == ["set"] else {"nothing"})
    assert len(result.seconds("k1")) == 4


def test_methods_are_interleaved_in_a_seeded_order(lm, prompt):
    orders = [
        [row.variant for row in _run(lm, [prompt], seed=seed, trials=8, states=["set"]).rows]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert all(
        {a, b} == {"naive", "k1"} for a, b in zip(orders[0][::2], orders[0][1::2], strict=True)
    )


def test_times_of_a_busy_machine_are_shown_with_the_load_or_refused(lm, prompt, monkeypatch):
    monkeypatch.setattr(latency, "MAX_LOAD", -1.0)  # any machine is too busy
    monkeypatch.setattr(Load, "share", 0.25)
    busy = "other processes took 25% of the machine's CPU time in 8 of 8 trials"
    shown = _run(lm, [prompt], states=["set"])
    refused = _run(lm, [prompt], allow_load=False, states=["set"])
    for result in (shown, refused):
        assert (result.load.busy, len(result.rows)) == (busy, 8)
        assert result.load.retried == latency.RETRIES  # as bounded over the whole run
    seen, hidden = (result.states["set"] for result in (shown, refused))
    assert (shown.refused, seen.summary["naive"]["total_s"].n, set(seen.gap)) == (None, 4, {"k1"})
    assert (refused.refused, hidden.summary, hidden.gap) == (busy, {}, {})
    assert [result.protocol.allow_load for result in (shown, refused)] == [True, False]


def test_a_disturbed_trial_is_repeated_and_the_repeat_counts(lm, prompt, monkeypatch):
    shares = iter([0.0, 0.5, 0.5, 0.0, 0.0])  # of attempts: the second trial has three
    monkeypatch.setattr(Load, "share", property(lambda load: load.seconds))
    monkeypatch.setattr(
        latency._Trials,
        "_trial",
        lambda *_: ({"total_s": 1.0, "stages": {}}, Load(next(shares), 0.0)),
    )
    naive = {("naive", "nothing"): make("naive")}
    times = latency._Trials(naive, lm, settings(), MACHINE, random.Random(0), bar("", "trial"))
    times.time_prompt(0, prompt, latency._prepared(naive, lm, prompt, None), 3)
    assert [(row.load_share, row.disturbed) for row in times.rows] == [(0.0, False)] * 3
    assert times.retried == 2


@pytest.mark.parametrize(
    ("disturbed", "load", "machine_share", "message"),
    [
        (1, Load(10.0, 0.0), 0.0, None),
        (2, Load(10.0, 0.0), 0.0, "took 30% of the machine's CPU time in 2 of 10 trials"),
        (0, Load(10.0, 1e3), 0.0, "of the machine's CPU time"),
        (0, Load(10.0, 0.0), 0.5, "while the machine's rates were measured"),
    ],
)
def test_what_disturbs(disturbed, load, machine_share, message):
    rows = [Trial(variant="x", disturbed=i < disturbed, load_share=0.3) for i in range(10)]
    busy = latency.disturbance(rows, load, machine_share, watch("cpu"))
    assert busy is None if message is None else message in busy


def test_evidence_for_several_questions_is_timed_side_by_side():
    decoder = long_lm()
    prompts = [prompt_of(question=f"Where is house {i}?") for i in (1, 2)]
    variants = {
        "naive": make("naive"),
        "k1": make("cfic", top_k=1, d=24),
        "free": make("free_extraction", volume=9),
    }
    bench = Bench(decoder, prompts[:1], batch=[*prompts, *prompts])
    seen = []
    right = latency.BatchScheduler
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            latency, "BatchScheduler", lambda lm, size: seen.append(size) or right(lm, size)
        )
        patch.setattr(latency, "RETRIES", 0)  # on a busy machine trials are repeated
        protocol = settings(trials=2, warmup=1, more_new_tokens=[2])
        result = latency.measure_latency(variants, bench, protocol, machine=MACHINE)
    assert seen == [4] * 2 * 3  # of two methods, a warm-up and two trials
    timed = result.evidence_batches
    assert timed.questions == 4
    assert sorted((row.variant, row.trial) for row in timed.rows) == [
        (name, trial) for name in ("free", "k1") for trial in (0, 1)
    ]
    assert all(row.evidence_s > 0 and "load_share" in row.model_fields_set for row in timed.rows)
    assert result.other_lengths[0].evidence_batches is None
    assert _run(decoder, prompts).evidence_batches is None


def test_a_prompt_is_prepared_once_for_all_lengths_of_a_response(lm, prompt):
    prepared = []
    naive = make("naive")
    right = type(naive).prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(naive), "prepare", lambda *given: prepared.append(given[-1]) or right(*given)
        )
        protocol = settings(trials=2, warmup=1, more_new_tokens=[2, 3], states=["set"])
        prompts = [prompt, replace(prompt, question="Where?")]
        result = latency.measure_latency(
            {"naive": naive}, Bench(lm, prompts), protocol, machine=MACHINE
        )
    assert prepared == prompts
    for times in (result, *result.other_lengths):
        assert [row.prompt for row in times.rows] == [0, 1]
        assert all(row.preparation_bytes > 0 for row in times.rows)


def test_bad_protocols_are_user_errors(lm, prompt):
    with pytest.raises(UserError, match="at least one prompt"):
        _run(lm, [])
    with pytest.raises(UserError, match="ends the response after 220 of 300"):
        _run(lm, [prompt], new_tokens=300)


def test_trials_are_divided_over_the_prompts(lm, prompt):
    rows = _run(lm, [prompt, prompt, prompt], trials=4, states=["documents"]).rows
    assert [row.prompt for row in rows if row.variant == "naive"] == [0, 0, 1, 2]


def test_of_one_document_the_list_is_the_document(lm, prompt):
    single = replace(prompt, documents=prompt.documents[:1])
    result = _run(lm, [single])
    assert result.usable == {"naive": "documents", "k1": "documents"}
    assert {row.state for row in result.rows} == {"documents"}


def test_rates_of_another_processor_are_measured_anew(lm, prompt, monkeypatch):
    """As on a cluster whose nodes differ."""
    monkeypatch.setattr(latency, "measure", lambda **_: {**MACHINE, "processor": "measured here"})
    bench = Bench(lm, [prompt])
    variants = {"naive": make("naive")}
    for stated, used in (
        ("another", "measured here"),
        (latency.processor("cpu"), latency.processor("cpu")),
    ):
        machine = {**MACHINE, "processor": stated}
        result = latency.measure_latency(variants, bench, settings(trials=1), machine=machine)
        assert result.machine["processor"] == used
