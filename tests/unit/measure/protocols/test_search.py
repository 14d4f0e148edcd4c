"""The search of the highest load within targets, on servers of known capacity."""

import json
import math
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from endpoints import chunk, served, sse
from json_lines import read_lines
from queueing import Simulated, Workers, simulated_server, waits
from ragauge.cli._main import main
from ragauge.config.protocols import LoadSettings
from ragauge.measure.protocols import arrivals, load, search
from ragauge.report.items import load_curve
from ragauge.results.capacity import capacities
from ragauge.results.runs import Runs
from ragauge.results.times import LoadTimes, ProtocolFacts, Watched
from ragauge.testing import write_questions


def settings_of(**stated):
    stated = {"target_first_token_s": 1.0, "warmup": 0, "new_tokens": 10, **stated}
    return LoadSettings(methods=["a", "b"], dataset="d", find=True, **stated)


@dataclass
class Server:
    """Workers with service times, a search's levels of which are measured on a simulated clock."""

    service: object  # a function of a random source
    workers: int = 1
    first: float = 0.1  # share of it until the first token

    def measure(self, name, level, settings, seed=3):
        clock = Simulated()
        draw = random.Random(seed + 100)
        services = (self.service(draw) for _ in range(10**6))
        count = search.requests_of(level, settings)
        watch = search.over_saturation(settings, level)
        server = Workers(clock, services, self.workers, self.first)
        served = arrivals.drive(server, level, 3, count, clock, seed, watch)
        rows = arrivals.rows(served, settings.warmup, level.ramp_s)
        return load.level_times(level, rows, Watched(), settings, seed, variant=name)


def searched(servers, settings):
    levels = []

    def measure(name, level):
        levels.append((name, level, servers[name].measure(name, level, settings)))
        return levels[-1][2]

    with TemporaryDirectory() as folder:
        measured = load.measure_levels(servers, "d", (), settings, measure, Path(folder))
    return by_arrivals(measured, settings), levels


def by_arrivals(measured, settings):
    facts = ProtocolFacts(**settings.model_dump(exclude={"methods"}))
    found = capacities(LoadTimes(levels=measured, protocol=facts))
    return {(one.variant, one.arrivals): one for one in found}


def test_a_search_brackets_the_highest_load_and_takes_turns():
    """Of constant service the wait of the last of n clients is n - 1 times the service."""
    servers = {"a": Server(lambda draw: 0.1), "b": Server(lambda draw: 0.35, 4)}
    found, levels = searched(servers, settings_of(target_first_token_s=0.95))
    assert (found["a", "clients"].met, found["a", "clients"].missed) == (10, 11)
    # four are served at once: a client waits 0.035 s, or 0.35 s longer in each further row
    assert (found["b", "clients"].met, found["b", "clients"].missed) == (12, 13)
    for name, capacity in (("a", 10.0), ("b", 4 / 0.35)):
        rate = found[name, "rate"]
        assert 0.7 * capacity < rate.met < capacity
        assert 1 < rate.missed / rate.met <= search.PRECISION
        assert rate.levels[rate.met].summary.good_share >= 0.95
        assert rate.levels[rate.missed].summary.good_share < 0.95
    assert [name for name, *_ in levels[:8]] == ["a", "b"] * 4
    assert len(levels) <= 2 * 14


@pytest.mark.parametrize(("attainment", "target"), [(0.5, 0.3), (0.95, 1.0)])
def test_the_rate_of_random_service_agrees_with_theory(attainment, target):
    """M/M/1 of ten a second: a wait is beyond t with probability busy * exp(-10 (1 - busy) t)."""
    settings = settings_of(target_first_token_s=target, attainment=attainment, requests=1_500)
    found, _ = searched({"a": Server(lambda draw: draw.expovariate(10.0), first=0.0)}, settings)
    shares = [busy / 1000 for busy in range(1, 1000)]
    late = [busy * math.exp(-10 * (1 - busy) * target) for busy in shares]
    highest = 10 * max(busy for busy, p in zip(shares, late, strict=True) if p <= 1 - attainment)
    rate = found["a", "rate"]
    assert rate.met * 0.92 < highest < rate.missed * 1.08


def test_a_level_ends_when_it_can_no_longer_meet_the_targets():
    settings = settings_of(requests=1000)
    server = Server(lambda draw: 0.1)
    over = server.measure("a", arrivals.Level(rate=20.0), settings)
    assert len(over.requests) < 300
    [note] = over.remarks
    assert note == f"over-saturated: ended after {len(over.requests)} of 1000 requests"
    assert over.summary.good_share < 0.95
    within = server.measure("a", arrivals.Level(rate=5.0), settings)
    assert (len(within.requests), within.remarks) == (1000, [])


@pytest.mark.parametrize("seed", range(2))
def test_no_level_that_meets_the_targets_ends_early(seed):
    draw = random.Random(seed)
    for _ in range(12):
        settings = settings_of(
            requests=draw.randint(20, 400),
            warmup=draw.randint(0, 9),
            attainment=draw.uniform(0.5, 0.99),
            target_first_token_s=draw.uniform(0.1, 2.0),
            target_per_token_s=draw.choice([None, 0.02]),
            ramp_s=draw.choice([0.0, 5.0]),
        )
        server = Server(lambda service: service.expovariate(10.0), draw.randint(1, 3))
        level = search.level_at(settings, rate=draw.uniform(2.0, 40.0))
        measured = server.measure("a", level, settings, seed)
        endless = settings.model_copy(update={"attainment": 1e-9})
        full = server.measure("a", level, endless, seed)
        if measured.remarks:
            assert full.summary.good_share < settings.attainment
        else:
            assert measured.requests == full.requests


def test_a_server_too_slow_for_one_client_has_no_rate():
    found, levels = searched({"a": Server(lambda draw: 20.0)}, settings_of())
    assert found["a", "clients"].met is None
    assert found["a", "clients"].missed == 1
    assert ("a", "rate") not in found
    assert len(levels) == 1


def test_a_short_level_does_not_hide_that_the_queue_grows():
    """Fifty requests at any rate are over within the target of a fast server."""
    found, levels = searched({"a": Server(lambda draw: 0.01)}, settings_of(requests=50))
    assert found["a", "rate"].met < 100
    assert found["a", "rate"].missed < 115
    assert max(len(times.requests) for _, _, times in levels) > 1000


def test_refused_times_end_a_search(tmp_path):
    settings = settings_of()
    served = arrivals.TimedRequest(arrivals.ScheduledRequest(0, 0, 0.0), 0.0, 0.1, 0.2, 2)

    def measure(name, level):
        seen = Watched(refused="busy" if name == "a" else None)
        rows = [arrivals.times(served)] * 60
        return load.level_times(level, rows, seen, settings, 0, variant=name)

    levels = load.measure_levels(["a", "b"], "d", (), settings, measure, tmp_path)
    found = by_arrivals(levels, settings)
    assert {variant for variant, _ in found} == {"b"}
    assert found["b", "clients"].met == 1024
    assert found["b", "clients"].missed is None


@pytest.mark.parametrize("killed_after", [0, 1, 6])
def test_an_interrupted_search_goes_on_behind_its_levels(killed_after, tmp_path):
    servers = {"a": Server(lambda draw: 0.1), "b": Server(lambda draw: draw.expovariate(4.0), 3)}
    settings = settings_of()
    calls = []

    def measure(name, level):
        if len(calls) == killed_after:
            calls.append(None)
            raise KeyboardInterrupt
        calls.append((name, level))
        return servers[name].measure(name, level, settings)

    with pytest.raises(KeyboardInterrupt):
        load.measure_levels(servers, "d", (), settings, measure, tmp_path)
    resumed = load.measure_levels(servers, "d", (), settings, measure, tmp_path)
    found, levels = searched(servers, settings)
    assert by_arrivals(resumed, settings) == found
    calls.remove(None)
    assert calls == [(name, level) for name, level, _ in levels], "each level once"


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"rates": [1.0]}, "leave out rates"),
        ({"speeds": [1.0]}, "leave out find"),
        ({"target_first_token_s": None}, "state target_first_token_s"),
    ],
)
def test_a_search_refuses_other_levels_and_needs_a_target(stated, problem):
    with pytest.raises(ValueError, match=problem):
        settings_of(**stated)


# --- over HTTP ---


@pytest.fixture
def questions(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    data = write_questions(tmp_path / "questions.jsonl")
    return f"--dataset nq_open --data {data} --model openai:m --methods naive".split()


def measured(out, *options):
    assert main(["load", *options, "--new-tokens", "2", "--out", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize(("workers", "rate"), [(1, 6.5), (2, 13.0)])
def test_waits_over_http_are_those_of_the_queue(workers, rate, questions, tmp_path, monkeypatch):
    with simulated_server(0.15, workers) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        options = f"--rates {rate} --requests 60 --warmup 0 --prompts 1".split()
        [level] = measured(tmp_path / "x.json", *questions, *options)["levels"]
    moments = [row["arrival_at_s"] for row in level["requests"]]
    expected = waits(moments, [0.15] * len(moments), workers)
    later = sorted(
        row["first_token_s"] - 0.15 - wait
        for row, wait in zip(level["requests"], expected, strict=True)
    )
    # two that come at once may change places, but together wait no less than the queue
    assert sum(later) > -0.05 * sum(expected)
    # a busy machine delays some, the quieter ones wait as long as the queue
    assert later[len(later) // 4] < 0.05 * sum(expected) / len(expected) + 0.01
    assert sum(expected) > 0.05 * len(expected)


def test_a_search_over_http_finds_the_clients_of_a_server(questions, tmp_path, monkeypatch, capsys):
    """Three workers of 50 ms serve 3 clients in 50 ms, 6 in 100 ms; 60 a second at most, and fewer
    where the machine is busy: the tests of virtual clocks are exact.
    """
    with simulated_server(0.05, 3) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        options = ["--find", "--target-first-token", "0.13", "--requests", "20", "--warmup", "2"]
        result = measured(tmp_path / "load/nq_open/m.json", *questions, *options)
    found = capacities(LoadTimes.read(tmp_path / "load/nq_open/m.json"))
    clients, rate = found
    assert 2 <= clients.met <= 7
    assert 8 < rate.met < 66
    assert {level["variant"] for level in result["levels"]} == {"naive"}
    printed = capsys.readouterr().out
    assert f"clients = {clients.met}" in printed
    table = load_curve.table(Runs(tmp_path)).set_index("quantity")
    highest = table.loc["highest_clients"]
    assert (highest["measured"], highest["high"]) == (clients.met, clients.missed)
    assert len(load_curve.draw(table.reset_index()).axes) == 3


def test_turns_have_what_was_asked_and_known_before(questions, tmp_path, monkeypatch):
    examples = read_lines(Path(questions[3]))
    asked = [example["question"] for example in examples]
    sent = []

    def reply(text):
        sent.append(text)
        usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
        return sse(chunk(content="x"), chunk(content="x"), chunk("length"), usage)

    with served(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = ["--clients", "1", "--turns", "2", "--prompts", "1", "--requests", "4"]
        options += ["--warmup", "0", "--thinking-s", "0.2"]
        result = measured(tmp_path / "x.json", *questions, *options)
    [level] = result["levels"]
    moments = [(row["arrival_at_s"], row["end_at_s"]) for row in level["requests"]]
    for (_, end), (arrival, _) in pairwise(moments):
        assert 0.19 <= arrival - end < 0.7
    assert [row["prompt"] for row in level["requests"]] == [0, 1, 0, 1]
    first, second = sent[-2:]
    assert asked[0] in first
    assert asked[1] not in first
    assert second.index(asked[0]) < second.index(examples[0]["answers"][0], second.index(asked[0]))
    assert second.index(asked[0]) < second.index(asked[1])
    assert main(["load", *questions, "--clients=1", "--turns=99", f"--out={tmp_path}/y"]) == 2


def test_levels_outlive_an_interruption_but_not_another_setting(questions, tmp_path, monkeypatch):
    """What is interrupted goes on; with another setting all levels are measured."""
    out = tmp_path / "x.json"
    levels = ["--warmup=0", "--requests=2", "--new-tokens=2", f"--out={out}"]
    levels += ["--clients=1,1,2"]
    times = load.level_times
    seen = []

    def counted(level, *args, **facts):
        if len(seen) == 2:
            seen.clear()
            raise KeyboardInterrupt
        seen.append(level.clients)
        return times(level, *args, **facts)

    monkeypatch.setattr(load, "level_times", counted)
    with served([sse(chunk(content="a"), chunk("length", content="b"))]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert main(["load", *questions, *levels]) != 0
        assert not out.exists()
        monkeypatch.setattr(load, "level_times", times)
        del server.requests[:]
        assert main(["load", *questions, *levels, "--thinking-s=0.001"]) == 0
        everything = len(server.requests)
        assert len(json.loads(out.read_text())["levels"]) == 3
        assert [*tmp_path.glob("*.levels")] == []
        monkeypatch.setattr(load, "level_times", counted)
        assert main(["load", *questions, *levels]) != 0
        monkeypatch.setattr(load, "level_times", times)
        del server.requests[:]
        assert main(["load", *questions, *levels]) == 0
    assert 0 < len(server.requests) < everything / 2
    assert [level["clients"] for level in json.loads(out.read_text())["levels"]] == [1, 1, 2]
    assert [*tmp_path.glob("*.levels")] == []


def test_a_level_of_nothing_but_warmup_has_no_summary():
    settings = LoadSettings(methods=["a"], dataset="d", rates=[1.0], warmup=9)
    served = [
        arrivals.TimedRequest(arrivals.ScheduledRequest(i, 0, i), i, i, i, 2) for i in range(3)
    ]
    rows = arrivals.rows(served, settings.warmup)
    level = load.level_times(arrivals.Level(rate=1.0), rows, Watched(), settings, 0, variant="a")
    assert level.summary.requests == 0
    assert len(level.remarks) == 1
    assert level.remarks[0] in load.table(LoadTimes(levels=[level]))


@pytest.mark.parametrize(("rate", "is_steady"), [(5.0, True), (14.0, False)])
def test_a_warmup_ends_where_answers_are_steady(rate, is_steady):
    settings = LoadSettings(methods=["a"], dataset="d", rates=[rate], warmup="steady", requests=400)
    clock = Simulated()
    services = (0.1 if number > 40 else 0.3 for number in range(400))  # slow at first
    level = arrivals.Level(rate=rate)
    done = arrivals.drive(Workers(clock, services), level, 3, 400, clock, 1)
    measured = load.level_times(
        level, arrivals.rows(done, "steady"), Watched(), settings, 0, variant="a"
    )
    warmup = sum(row.warmup for row in measured.requests)
    assert (measured.remarks == []) == is_steady
    assert 40 <= warmup < 200 if is_steady else warmup == 200
