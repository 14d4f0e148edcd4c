"""An estimate of a run: by hand from seconds that are known, and next to a run that follows it."""

import json
import statistics
import time
from pathlib import Path

import pytest

from endpoints import served, streams
from json_lines import last_value, read_lines, write_lines
from ragauge.cli._main import main
from ragauge.config.experiment import AnswerJob
from ragauge.config.loading import load, parse
from ragauge.measure.protocols import estimate as estimates
from ragauge.measure.protocols.estimate import Rates, Span, Work, estimate
from ragauge.results.times import LatencyTimes
from ragauge.testing import write_checkpoint

# that the estimate of a decoder of two layers, whose passes cost their launches, may be off
FACTOR = 10
QUESTION = {
    "id": "1",
    "question": "Where?",
    "answers": ["Assam"],
    "documents": [{"title": "a", "text": "Assam.", "is_gold": True}],
}
EXPERIMENT = {
    "run": "t",
    "models": {"mpt-7b-instruct": {"dtype": "bfloat16"}},
    "datasets": {"nq_open": {"limit": 10}},
    "methods": {"naive": {}, "prompt_cache": {}},
    "items": ["frontier"],
}


def experiment(**changes):
    return parse(EXPERIMENT | changes, "t.yaml")


def work(variant, new_tokens=None):
    return Work(AnswerJob("nq_open", "mpt-7b-instruct", variant), new_tokens)


def rates(**trials):
    """Two seconds for a question of naive, and a half to one and a half for one of prompt_cache."""
    seconds = {work("naive"): [(0.0, 2.0)], work("prompt_cache"): [(0.25, 0.25), (1.0, 0.5)]}
    timed = {work(name, 5): [value] for name, value in trials.items()}
    return Rates(seconds | timed, {"nq_open": 100})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([3.0], (2.0, 3.0, 4.0)), ([3.0, 3.0, 3.0], (2.0, 3.0, 4.0)), ([1.0, 8.0], (1.0, 4.5, 8.0))],
)
def test_bounds_are_a_third_apart_or_as_far_as_seconds_vary(seconds, expected):
    span = Span.of_samples(seconds)
    assert (span.low, span.likely, span.high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("limit", "cores", "expected"),
    [(10, 1, 30.0), (20, 1, 60.0), (10, 2, 15.0 * estimates.SIDE_BY_SIDE), (None, 1, 300.0)],
)
def test_seconds_are_multiplied_by_questions(limit, cores, expected):
    config = experiment(datasets={"nq_open": {"limit": limit}})
    made = estimate(config, rates(), cores)
    assert made.wall.likely == pytest.approx(expected)
    assert made.wall.low < made.wall.likely < made.wall.high


def test_times_are_those_of_the_protocol():
    latency = {"methods": ["naive"], "dataset": "nq_open", "trials": 4, "warmup": 1}
    config = experiment(latency={**latency, "answer_tokens": None})
    made = estimate(config, rates(naive=(0.0, 0.5)), 1)
    # in `documents`, which is `nothing` to it; in `set` its documents are read once a prompt
    assert made.sections["times"].likely == pytest.approx((3 + 4) * 0.5 + 3 * 0.5)
    assert "times" not in estimate(config, rates(), 1).sections
    both = estimate(experiment(latency=latency), rates(naive=(0.0, 0.5)), 1)
    answers = 7 * 2.0  # of the length of the answers, which take 2 s; prompts have been read
    assert both.sections["times"].likely == pytest.approx(5.0 + answers)


@pytest.mark.parametrize(
    ("states", "trials"),
    [
        (["documents"], [(1.0, 0.5)]),
        (["documents", "set"], [(1.0, 0.5)]),
        (["nothing"], [(0.0, 1.5)]),
        (["nothing", "set"], [(1.0, 0.5), (0.0, 1.5)]),
    ],
)
def test_a_state_in_which_a_method_gains_no_more_takes_no_time(states, trials):
    """Prompt Cache reads each document by itself."""
    latency = {"methods": ["prompt_cache"], "dataset": "nq_open", "trials": 4, "warmup": 1}
    config = experiment(latency={**latency, "states": states, "answer_tokens": None})
    made = estimate(config, rates(prompt_cache=(1.0, 0.5)), 1)
    expected = sum(3 * prepared + 7 * answered for prepared, answered in trials)
    assert made.sections["times"].likely == pytest.approx(expected)


def test_what_has_no_seconds_is_named_and_not_counted():
    made = estimate(experiment(), estimates.measure(experiment()))
    assert made.sections == {}
    assert made.not_estimated[0].startswith("2 variants: ")
    assert made.not_estimated[-1] == "items"
    assert made.downloads_gb["mpt-7b-instruct"] == pytest.approx(2 * 6_649_286_656 / 1e9)
    assert made.wall.likely == 0
    config = experiment(databases={"far": {"corpus": "hf:org/unknown"}}, pipelines={"random": {}})
    assert estimate(config, rates()).not_estimated == ["databases, pipelines, items"]


def test_a_question_that_fails_has_no_seconds():
    questions(Path("q.jsonl"))
    config = parse(small({"max_context": 8}), "t.yaml")
    measured = estimates.measure(config)
    assert set(measured.unknown) == {Work(job) for job in config.answers()}


def questions(path):
    documents = [
        {"title": f"t{i}", "text": f"Tea number {i} grows here.", "is_gold": i == 0}
        for i in range(3)
    ]
    lines = [
        {"id": str(i), "question": f"Which tea {i}?", "answers": ["0"], "documents": documents}
        for i in range(8)
    ]
    write_lines(path, lines)


def small(model=None):
    """An experiment of a tiny model in the working folder."""
    write_checkpoint(Path("model"))
    source = {"source": f"path:{Path('model').resolve()}", "dtype": "float32"}
    data = {"dataset": "study", "data": str(Path("q.jsonl").resolve()), "max_new_tokens": 6}
    changes = {"models": {"model": source | (model or {})}, "datasets": {"questions": data}}
    return EXPERIMENT | changes | {"methods": {"naive": {}, "superposition": {}}}


def test_a_run_takes_what_was_estimated(capsys):
    questions(Path("q.jsonl"))
    latency = {"methods": ["naive"], "dataset": "questions", "trials": 2}
    Path("config.yaml").write_text(json.dumps(small() | {"latency": latency}))
    assert main(["estimate", "config.yaml", "--json"]) == 0
    estimated = last_value(capsys.readouterr().out)
    assert list(estimated["sections"]) == ["answers", "times"]
    took = 0.0
    for name in ("naive", "superposition"):
        out = f"results/t/answers/questions/model/{name}.jsonl"
        given = ["--config", "config.yaml", "--dataset", "questions", "--model", "model"]
        assert main(["run", *given, "--threads", "1", "--method", name, "--out", out]) == 0
        records = read_lines(Path(out))
        took += sum(record["online_s"] + (record["offline_s"] or 0.0) for record in records)
    span = estimated["sections"]["answers"]
    assert span["low"] / FACTOR < took < span["high"] * FACTOR
    assert estimated["wall_s"]["likely"] > span["likely"]
    assert estimated["downloads_gb"] == {}
    config = load(Path("config.yaml"))
    known = estimates.recorded(config)
    assert [len(known.seconds[Work(job)]) for job in config.answers()] == [8, 8]
    assert "answers" not in estimate(config, estimates.measure(config)).sections


def test_a_served_model_is_timed(tmp_path, monkeypatch):
    """Each question of it counts: its requests are the seconds."""
    (tmp_path / "q.jsonl").write_text(json.dumps(QUESTION) + "\n")

    def reply(prompt):
        time.sleep(0.05)
        return streams("Assam")

    with served(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        config = experiment(
            models={"m": {"source": "openai:m", "served": {"own_cache": True}}},
            datasets={"study": {"data": "q.jsonl"}},
            methods={"closed_book": {}, "top_k1": {"method": "top", "top_k": 1}},
        )
        rates = estimates.measure(config)
    assert not rates.unknown
    assert len(rates.seconds) == 2
    assert all(online_s > 0.05 for [(_, online_s)] in rates.seconds.values())
    assert estimate(config, rates, 1).wall.likely > 0.1


def test_times_are_also_of_the_median_length_of_the_recorded_answers():
    questions(Path("q.jsonl"))
    latency = {"methods": ["naive"], "dataset": "questions", "trials": 1, "warmup": 1}
    Path("config.yaml").write_text(json.dumps(small() | {"latency": latency}))
    given = ["--config", "config.yaml", "--dataset", "questions", "--model", "model"]

    def timed(*options):
        assert main(["time", *given, "--prompts", "1", "--out", "t.json", *options]) == 0
        return LatencyTimes.read(Path("t.json"))

    assert timed("--states", "documents").other_lengths == []  # nothing is recorded yet
    out = Path("results/t/answers/questions/model/naive.jsonl")
    assert main(["run", *given, "--method", "naive", "--out", str(out)]) == 0
    lengths = [json.loads(line)["tokens"]["generated"] for line in out.read_text().splitlines()]
    median = round(statistics.median(lengths))
    times = timed()
    assert list(times.states) == ["documents", "set"]
    assert times.protocol.answer_tokens == median
    assert times.at_answer_length.protocol.new_tokens == median
    assert times.protocol.new_tokens == 5
    assert timed("--answer-tokens", "7", "--states", "set").at_answer_length.seconds("naive")
