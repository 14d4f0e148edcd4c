"""Arrivals against queueing theory, on a clock that the server moves."""

import math
import random
import re
from dataclasses import replace

import pytest

from queueing import Simulated, Workers, wait_of_m_d_1
from ragauge.measure.protocols import load, stream
from ragauge.measure.protocols.arrivals import (
    Level,
    OneByOne,
    ScheduledRequest,
    TimedRequest,
    drive,
    percentiles,
    rows,
    steady_from,
    summarise,
)
from ragauge.results.times import LoadLevel, LoadTimes, RequestSummary, Stream


def serve(level, service, requests):
    """The rows of a server that takes these seconds for its answers, a tenth of each until the
    first token.
    """
    clock = Simulated()
    seconds = iter(service)

    def answer(request):
        begin = clock.at
        clock.at += next(seconds)
        return TimedRequest(request, begin, begin + 0.1 * (clock.at - begin), clock.at, 10)

    return rows(drive(OneByOne(answer), level, 3, requests, clock, 1), warmup=requests // 10)


def mean(result, key):
    return sum(getattr(row, key) for row in result) / len(result)


@pytest.mark.parametrize("busy", [0.3, 0.7])
def test_constant_service_waits_as_m_d_1(busy):
    result = serve(Level(rate=busy / 2), [2.0] * 20_000, 20_000)
    # Pollaczek and Khinchine
    assert mean(result, "queued_s") == pytest.approx(wait_of_m_d_1(busy / 2, 2.0), rel=0.05)


def test_a_rate_rises_evenly_during_a_ramp():
    level = Level(rate=20.0, ramp_s=100.0)
    clock = Simulated()
    served = drive(Workers(clock, [0.01] * 9_000, 5), level, 3, 2_000, clock, seed=4)
    result = rows(served, 10, level.ramp_s)
    arrivals = [row.arrival_at_s for row in result]
    ramp = [at for at in arrivals if at < 100]
    assert len(ramp) == pytest.approx(20 * 100 / 2, rel=0.1)
    # a quarter of them in the first half
    assert sum(at < 50 for at in ramp) == pytest.approx(len(ramp) / 4, rel=0.15)
    assert len(arrivals) - len(ramp) == 2_000
    assert arrivals[-1] - 100 == pytest.approx(2_000 / 20, rel=0.1)
    assert [row.warmup for row in result].count(True) == len(ramp) + 10


def test_clients_come_one_by_one_during_a_ramp():
    clock = Simulated()
    level = Level(clients=4, ramp_s=8.0)
    result = rows(drive(Workers(clock, [1.0] * 99, 4), level, 3, 20, clock), 0, 8.0)
    arrivals = [row.arrival_at_s for row in result]
    under_way = [
        sum(at <= t < row.end_at_s for at, row in zip(arrivals, result, strict=True))
        for t in range(1, 9, 2)
    ]
    assert under_way == [1, 2, 3, 4]
    assert [row.warmup for row in result].count(False) == 20


@pytest.mark.parametrize(
    ("level", "expected"),
    [(Level(rate=5.0, duration_s=400.0), 2_000), (Level(clients=3, duration_s=90.0), 540)],
)
def test_a_level_may_last_so_long(level, expected):
    clock = Simulated()
    result = rows(drive(Workers(clock, [0.5] * 9_000, 3), level, 3, 7, clock, seed=1), 0)
    assert len(result) == pytest.approx(expected, rel=0.05)
    assert result[-1].arrival_at_s < level.duration_s


@pytest.mark.parametrize("load", [{"clients": 2}, {"rate": 0.6}])
def test_turns_follow_their_answers_after_a_pause(load):
    turns, prompts = 3, 6
    clock = Simulated()
    level = Level(**load, turns=turns, thinking_s=4.0)
    draw = random.Random(3)
    services = (draw.uniform(0.5, 1.5) for _ in range(999))
    served = drive(Workers(clock, services, 8), level, prompts, 60, clock, seed=5)
    result = rows(served, 0)
    assert [row.request for row in result] == list(range(60))
    arrivals = [row.arrival_at_s for row in result]
    assert arrivals == sorted(arrivals)
    ends = {round(row.end_at_s + 4.0, 6): row.prompt for row in result}
    for row in result:
        if row.prompt % turns:  # four seconds after the turn before it
            assert ends[round(row.arrival_at_s, 6)] == row.prompt - 1
    assert sorted(row.prompt for row in result) == sorted(list(range(prompts)) * 10)
    if "rate" in load:  # of requests, not of conversations
        assert 60 / arrivals[-1] == pytest.approx(0.6, rel=0.3)


def test_the_steady_part_begins_where_the_time_settles():
    draw = random.Random(8)
    falling = [10 * 0.9**i + draw.gauss(1.0, 0.1) for i in range(200)]
    assert 20 <= steady_from(falling) <= 80
    assert steady_from([draw.gauss(1.0, 0.1) for _ in range(200)]) <= 100
    assert steady_from([0.1 * i for i in range(200)]) == 100  # a queue that grows
    assert steady_from([2.0] * 3) == 0


def test_clients_ask_again_when_they_are_answered():
    result = serve(Level(clients=4), [2.0] * 100, 100)
    assert [row.queued_s for row in result[:6]] == pytest.approx([0, 2, 4, 6, 6, 6])
    summary = summarise(result, {"first_token_s": 7.0, "per_token_s": 0.19})
    assert summary.questions_per_s == pytest.approx(0.5, rel=0.05)
    assert summary.tokens_per_s == pytest.approx(5.0, rel=0.05)
    assert summary.in_service == pytest.approx(1.0, rel=0.05)
    assert summary.total_s.p95.value == pytest.approx(8.0)
    assert summary.good_share == 0  # nine further tokens in 1.8 seconds are 0.2 s each
    assert summarise(result, {"first_token_s": 7.0}).good_share == 1


@pytest.mark.parametrize("clients", [1, 3, 16])
def test_the_steady_window_has_the_rate_of_busy_clients(clients):
    """Answers of 10 seconds side by side: the whole has the start and the end of the loop in it."""
    clock = Simulated()
    draw = random.Random(clients)
    many = 40 * clients
    server = Workers(clock, (draw.uniform(5, 15) for _ in range(many)), clients)
    result = rows(drive(server, Level(clients=clients), 1, many, clock), warmup=clients)
    summary = summarise(result, clients=clients)
    window = summary.steady
    assert window.questions_per_s == pytest.approx(clients / 10, rel=0.1)
    assert window.tokens_per_s == pytest.approx(10 * window.questions_per_s)
    assert window.total_s.p50.value == pytest.approx(10, rel=0.15)
    if clients > 1:  # at the end fewer and fewer are busy
        assert summary.questions_per_s < window.questions_per_s
    begin = min(row.arrival_at_s for row in result if not row.warmup)
    at = begin + window.seconds
    assert sum(begin < row.end_at_s <= at for row in result) == window.requests
    assert sum(row.arrival_at_s < at <= row.end_at_s for row in result) == clients
    assert summarise(result).steady is None
    assert summarise(result[clients : 2 * clients], clients=clients + 1).steady is None


@pytest.mark.parametrize(
    ("speed", "service", "expected"),
    [
        (1.0, 0.5, [0, 1, 1, 4]),
        (2.0, 0.5, [0, 0.5, 0.5, 2]),
        # 2 and 3 are next turns of 0 and 2: sent as soon as these are answered
        (1.0, 3.0, [0, 1, 3, 9]),
    ],
)
def test_a_trace_arrives_at_its_moments_but_turns_wait(speed, service, expected):
    level = Level(speed=speed, moments=[7, 8, 8, 11], next_turns={0: 2, 2: 3})
    result = serve(level, [service] * 4, 4)
    assert [row.arrival_at_s for row in result] == pytest.approx(expected)
    starts = [row.start_at_s for row in result]
    assert starts[3] >= result[2].end_at_s


def test_a_client_that_pauses_holds_up_no_other():
    clock = Simulated()
    pauses = iter([30.0, *[0.0] * 5])

    class Failing(Workers):
        def step(self, until):
            return [replace(one, pause_s=next(pauses)) for one in super().step(until)]

    result = rows(drive(Failing(clock, [1.0] * 6, 2), Level(clients=2), 1, 6, clock), warmup=0)
    assert sorted(row.arrival_at_s for row in result) == [0, 0, 1, 2, 3, 31]


def test_intervals_are_wider_where_neighbours_are_alike():
    draw = random.Random(0)
    values = [draw.expovariate(1.0) for _ in range(400)]
    result = percentiles(values)
    assert result.p50.low < math.log(2) < result.p50.high
    assert result.p95.low < -math.log(0.05) < result.p95.high
    width = {name: interval.high - interval.low for name, interval in result}
    alike = percentiles(sorted(values))
    assert alike.p50.high - alike.p50.low > width["p50"]
    assert alike.p95.high - alike.p95.low > width["p95"]


def test_failures_stand_next_to_percentiles_with_their_reasons():
    scheduled = [ScheduledRequest(i, i, float(i)) for i in range(20)]
    reasons = ["no answer"] * 5 + ["reset"] * 2 + [None] * 13
    made = rows(
        [
            TimedRequest(request, i, i + 0.5, i + 1.0, 5, reason)
            for i, (request, reason) in enumerate(zip(scheduled, reasons, strict=True))
        ],
        warmup=4,
    )
    streamed = Stream(variant="naive", summary=summarise(made), requests=made)
    printed = stream.line(streamed)
    assert "5 of 20 requests failed: no answer; 2 of 20 requests failed: reset" in printed
    lost = streamed.model_copy(update={"summary": RequestSummary()})
    assert "2 of 20 requests failed: reset" in stream.line(lost)
    level = LoadLevel(variant="naive", rate=1.0, summary=summarise(made), requests=made)
    table = load.table(LoadTimes(levels=[level]))
    assert re.search(r"^naive, .*: 1 of 16 requests failed: no answer$", table, re.MULTILINE)
    assert re.search(r"^naive, .*: 2 of 16 requests failed: reset$", table, re.MULTILINE)
