"""What the first screen recommends, on invented records: quality first, then time, and what is
missing.
"""

import json
import random

import pytest

from json_lines import read_lines, write_lines
from ragauge.config import loading
from ragauge.cost.trace import Call
from ragauge.report.page import numbers
from ragauge.results.runs import Runs
from ragauge.results.times import LatencyTimes
from synthetic_run import MODEL, write_latency, write_load, write_states, write_variant

METHODS = {
    "closed_book": {},
    "naive": {},
    "top_k1": {"method": "top", "top_k": 1},
    "top_k2": {"method": "top", "top_k": 2},
    "top_k5": {"method": "top", "top_k": 5},
    "sentence_pruning": {},
    "prompt_cache": {},
    "superposition": {},
}
# seconds of an answer on one thread, share of right answers
MADE = {
    "closed_book": (0.3, 0.05),
    "top_k1": (1.0, 0.35),
    "top_k2": (1.6, 0.8),
    "top_k5": (3.0, 0.82),
    "sentence_pruning": (2.2, 0.81),
    "naive": (4.7, 0.8),
}
QUESTIONS = 60


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """The file of a study's questions, which configurations name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").touch()


def config(seed=0, **more):
    data = {"run": "s", "seed": seed, "models": {MODEL: {}}, "methods": METHODS, **more}
    datasets = {"nq_open": {}, "study": {"data": "q.jsonl"}}
    return loading.parse({"datasets": datasets, "items": ["frontier"], **data}, "s.yaml")


def write(folder, made=MADE, questions=QUESTIONS, seed=0, dataset="study", **fields):
    """Write a run whose variants are right on random questions, with seconds of their answers."""
    rng = random.Random(seed)
    for name, (online_s, share) in made.items():
        right = [rng.random() < share for _ in range(questions)]
        method, _, top = name.partition("_k")
        params = {"top_k": int(top)} if top else {}
        clocks = {"online_s": online_s * rng.uniform(0.95, 1.05), "offline_s": 0.0, **fields}
        write_variant(folder, name, method, right, params=params, dataset=dataset, **clocks)


def group_of(folder, **more):
    [group] = numbers.groups(Runs(folder, config(**more)))
    return group


def disturb(folder, rng):
    """Give each answer seconds of its own: questions differ in length, other work on the machine
    delays all answers a little, and those of a stretch of each variant's questions much.
    """
    lengths = [rng.lognormvariate(0, 0.3) for _ in range(QUESTIONS)]
    for path in sorted((folder / "answers").rglob("*.jsonl")):
        records = read_lines(path)
        burst = rng.randrange(QUESTIONS)
        for number, record in enumerate(records):
            late = 3.0 if burst <= number < burst + QUESTIONS // 6 else 1.0
            record["online_s"] *= lengths[number] * rng.lognormvariate(0, 0.25) * late
        write_lines(path, records)


NOISY = {
    # seconds and share of right answers; the one that is recommended
    "reads less and is better, in time that cannot be told apart": (
        {"top_k1": (0.46, 0.65), "top_k2": (0.50, 0.6)},
        "top_k1",
    ),
    "is better, a little later": ({"top_k1": (0.46, 0.6), "top_k2": (0.50, 0.65)}, "top_k2"),
    "is better, much later": ({"top_k1": (0.46, 0.6), "top_k5": (0.92, 0.65)}, "top_k1"),
    "reads less": ({"top_k1": (0.50, 0.6), "top_k2": (0.48, 0.6)}, "top_k1"),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("case", NOISY)
def test_a_busy_machine_does_not_change_the_recommendation(tmp_path, case, seed):
    """Of the seconds of answers, disturbed, and of undisturbed trials of the protocol."""
    made, name = NOISY[case]
    rng = random.Random(case + str(seed))
    references = {"closed_book": (0.2, 0.05), "naive": (2.0, 0.62)}
    for variant, (online_s, share) in {**references, **made}.items():
        right = [number < share * QUESTIONS for number in range(QUESTIONS)]
        rng.shuffle(right)
        method, _, top = variant.partition("_k")
        trace = [Call("prompt", (100 * int(top or 10),), (0,), seconds=online_s).to_json()]
        write_variant(
            tmp_path,
            variant,
            method,
            right,
            params={"top_k": int(top)} if top else {},
            dataset="study",
            online_s=online_s,
            offline_s=0.0,
            trace=trace,
        )
    disturb(tmp_path, rng)
    fallback = group_of(tmp_path, seed=seed)
    trials = {
        variant: [0.4 * online_s * rng.lognormvariate(0, 0.02) for _ in range(5)]
        for variant, (online_s, _) in {**references, **made}.items()
    }
    write_latency(tmp_path, trials)
    (tmp_path / "latency" / "nq_open").rename(tmp_path / "latency" / "study")
    clocked = group_of(tmp_path, seed=seed)
    assert (fallback["cost"], clocked["cost"]) == ("answering_total_s", "total_s")
    found = [numbers.recommendation(group).row["name"] for group in (fallback, clocked)]
    assert found == [name, name]


def test_a_wait_is_longer_by_more_than_chance_and_by_what_people_notice():
    rng = random.Random(3)
    noise = [rng.lognormvariate(0, 0.2) for _ in range(200)]
    waits = dict(enumerate(noise))
    for factor, is_longer in ((1.0, False), (1.1, False), (1.3, True), (0.7, False)):
        others = {key: wait * factor * rng.lognormvariate(0, 0.1) for key, wait in waits.items()}
        assert numbers.is_longer(others, waits) is is_longer, factor
    some = {key: waits[key] for key in range(6)}
    assert not numbers.is_longer({key: 2 * wait for key, wait in some.items()} | {0: 0.01}, some)
    assert not numbers.is_longer({-1: 9.0}, waits)  # no question in common


def test_of_variants_that_are_tied_the_fastest_is_recommended_and_the_others_named(tmp_path):
    made = {name: (s, 0.05 if name == "closed_book" else 1.0) for name, (s, _) in MADE.items()}
    made["top_k1"] = (1.0, 0.5)
    write(tmp_path, made)
    group = group_of(tmp_path)
    found = numbers.recommendation(group)
    assert found.row["name"] == "top_k2"  # all others are right on every question
    assert {row["name"] for row in found.tied} == {"top_k5", "sentence_pruning", "naive"}
    assert (group["provisional"], group["withheld"]) == (None, None)


def test_answers_without_documents_are_never_recommended(tmp_path):
    write(tmp_path, {name: (s, 0.5) for name, (s, _) in MADE.items()})
    group = group_of(tmp_path)
    group["withheld"] = None
    assert numbers.recommendation(group).row["name"] != "closed_book"


def test_a_given_limit_comes_before_quality(tmp_path):
    write(tmp_path, first_token_s=0.2)
    assert numbers.recommendation(group_of(tmp_path)).row["name"] == "top_k2"
    group = group_of(tmp_path, target_first_token_s=0.1)
    assert numbers.recommendation(group) is None
    assert group["withheld"] is None


@pytest.mark.parametrize(
    ("missing", "questions", "words"),
    [
        (["naive"], 60, ["naive"]),
        (["closed_book", "naive"], 60, ["closed_book and naive"]),
        (["top_k1"], 60, ["first passage"]),
        (["naive"], 20, ["naive", "20 questions"]),
        ([], 49, ["49 questions"]),
        ([], 50, None),
    ],
)
def test_a_recommendation_without_its_references_is_provisional(
    tmp_path, missing, questions, words
):
    made = {name: entry for name, entry in MADE.items() if name not in missing}
    write(tmp_path, made, questions)
    provisional = group_of(tmp_path)["provisional"]
    assert all(word in provisional for word in words) if words else provisional is None


def test_a_reference_of_few_questions_is_missing(tmp_path):
    write(tmp_path)
    write(tmp_path, {"naive": (4.7, 0.8)}, 12)
    assert "naive" in group_of(tmp_path)["provisional"]


CALLS = [
    Call("documents", (100,), (0,), offline=True, seconds=0.5),
    Call("prompt", (50,), (100,), seconds=1.0),
]


def rows_of(group):
    return {row["name"]: row for row in group["variants"]}


def test_a_wait_is_that_of_a_state(tmp_path):
    """Of the seconds of answers, and of operations: superposition's positions depend on the list,
    and the plain prompt had nothing cached.
    """
    trace = [call.to_json() for call in CALLS]
    made = {"prompt_cache": (1.0, 0.8), "superposition": (1.0, 0.8), "naive": (4.0, 0.8)}
    write(tmp_path, made, online_s=1.0, offline_s=0.5, trace=trace)
    group = group_of(tmp_path)
    assert group["state"] == "documents"
    waits = {
        kind: {
            name: [numbers.wait(row, kind, state) for state in ("nothing", "documents", "set")]
            for name, row in rows_of(group).items()
        }
        for kind in ("answering_total_s", "compute_cycles")
    }
    assert waits["answering_total_s"] == {
        "prompt_cache": [1.5, 1.0, 1.0],
        "superposition": [1.5, 1.5, 1.0],
        "naive": [1.0, 1.0, None],
    }
    cycles = waits["compute_cycles"]
    assert cycles["prompt_cache"][0] > cycles["prompt_cache"][1] == cycles["prompt_cache"][2] > 0
    assert cycles["superposition"][:2] == [cycles["prompt_cache"][0]] * 2
    assert cycles["naive"][2] is None
    read = {name: row["preparation"] for name, row in rows_of(group).items()}
    assert read["prompt_cache"] == {state: {"preparation_s": 0.5} for state in ("documents", "set")}
    assert read["superposition"] == {"set": {"preparation_s": 0.5}}


def test_embeddings_of_documents_are_neither_waited_for_nor_read_before(tmp_path):
    """They are an index, in every state and by every clock."""
    index = Call("rank", (), (), offline=True, macs=10**9, seconds=0.75)
    trace = [call.to_json() for call in (index, *CALLS)]
    plain = [call.to_json() for call in (index, CALLS[1])]
    fields = {"online_s": 1.0, "first_token_s": 0.5}
    write(tmp_path, {"sentence_pruning": (1.0, 0.8)}, trace=plain, **{**fields, "offline_s": 0.75})
    write(tmp_path, {"prompt_cache": (1.0, 0.8)}, trace=trace, **{**fields, "offline_s": 1.25})
    rows = rows_of(group_of(tmp_path))
    pruning, cached = rows["sentence_pruning"], rows["prompt_cache"]
    waits = [numbers.wait(cached, "answering_total_s", state) for state in numbers.READ]
    assert waits == [1.5, 1.0, 1.0]
    for kind, wait in (("answering_total_s", 1.0), ("answering_first_token_s", 0.5)):
        assert {numbers.wait(pruning, kind, state) for state in numbers.READ} == {wait}
    [cycles] = {numbers.wait(pruning, "compute_cycles", state) for state in numbers.READ}
    assert 0 < cycles == pytest.approx(numbers.wait(cached, "compute_cycles", "documents"))
    assert pruning["preparation"] == {}
    assert cached["preparation"]["documents"] == {"preparation_s": 0.5}


def test_times_of_the_protocol_are_those_of_the_answers_length(tmp_path):
    write(tmp_path, {"naive": (4.0, 0.8), "prompt_cache": (1.0, 0.8)})
    totals = {
        "naive": {"nothing": [8.0] * 2, "set": [2.0] * 2},
        "prompt_cache": {"documents": [1.0] * 2},
    }
    write_states(tmp_path, totals, {"naive": 6.0, "prompt_cache": 5.0})
    path = tmp_path / "latency" / "nq_open" / f"{MODEL}.json"
    short = json.loads(path.read_text())
    long = json.loads(path.read_text())
    long["protocol"]["new_tokens"] = 25
    for row in long["rows"]:
        row["total_s"] += 3.0
    short["protocol"]["answer_tokens"] = 25
    path.write_text(json.dumps({**short, "other_lengths": [long]}))
    times = LatencyTimes.read(path).at_answer_length
    assert (times.dataset, times.model) == ("nq_open", MODEL)
    path.parent.rename(tmp_path / "latency" / "study")
    rows = rows_of(group_of(tmp_path))
    assert numbers.wait(rows["naive"], "total_s", "documents") == 11.0
    assert numbers.wait(rows["naive"], "total_s", "set") == 5.0
    assert numbers.wait(rows["naive"], "first_token_s", "set") == 1.0
    assert numbers.wait(rows["prompt_cache"], "total_s", "nothing") is None
    assert rows["naive"]["preparation"] == {"set": {"preparation_s": 6.0, "preparation_bytes": 2e6}}


def test_a_model_is_not_judged_by_its_answers_without_documents(tmp_path):
    write(tmp_path, {"closed_book": (0.3, 0.0)})
    assert "no variant that reads documents" in group_of(tmp_path)["withheld"]


def test_a_variant_has_the_users_at_its_target(tmp_path):
    write(tmp_path, dataset="nq_open")
    levels = [
        {
            "variant": name,
            key: load,
            "summary": {"requests": 20, "good_share": share},
            "requests": [],
        }
        for name, key, load, share in [
            ("naive", "clients", 2, 1.0),
            ("naive", "clients", 3, 0.9),
            ("naive", "rate", 0.5, 0.95),
            ("top_k2", "clients", 1, 0.5),
        ]
    ]
    write_load(tmp_path, {}, levels=levels)
    group = group_of(tmp_path)
    found = {row["name"]: row["capacities"] for row in group["variants"]}
    limits = "first token within 1 s"
    assert found["naive"] == {
        "clients": {"load": 2, "limits": limits},
        "rate": {"load": 0.5, "limits": limits},
    }
    assert found["top_k2"] == {"clients": {"load": 0, "limits": limits}}
    assert found["top_k5"] == {}
