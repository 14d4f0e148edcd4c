"""Time to first token under load.

What this shows: for each method under the load protocol, the 95th percentile of the time to first
token over the rate of Poisson arrivals, with queueing; in the table also p50, p99, the time of each
further token, and the questions and tokens a second that were answered and that met the targets.
Clients that ask one question after another have rows of their own, and so has a replayed trace.
Intervals are of a block bootstrap over successive requests; `load` is a rate in questions a second,
a number of clients or the speed of a trace.

Limits: a growing queue is not marked. Where fewer questions a second are answered than arrive, the
wait grows with more requests.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Lines
from ragauge.results import timing
from ragauge.results.cells import Cell, CellSource, Measure, Table, frame, join
from ragauge.results.provenance import SERVER, place
from ragauge.results.runs import Runs

KEYS = ("model", "dataset", "method", "variant", "arrivals", "load")
POISSON = "poisson"
CLIENTS = "clients"
TRACE = "trace"
TAIL = "first_token_p95_s"
TIMES = ("first_token_s", "per_token_s")
RATES = ("questions_per_s", "tokens_per_s", "goodput_per_s")

READS = Reads(load="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, (cell for protocol in runs.loads for cell in _file(runs, protocol)))


def draw(table: Table) -> Figure:
    rate = Axis("Poisson arrivals (questions/s)", from_zero=True)
    tail = Axis("time to first token, p95 (s)", "log")
    nothing = "Nothing to draw yet: no model was measured under Poisson arrivals."
    plot = Lines("load", rate, TAIL, tail, lambda row: str(row.keys["variant"]), nothing=nothing)
    return plot(table[table["arrivals"] == POISSON])


def _file(runs: Runs, measured: Mapping[str, Any]) -> Iterator[Cell]:
    for level in measured.get("levels") or ():
        kinds = {
            POISSON: level.get("rate"),
            CLIENTS: level.get("clients"),
            TRACE: level.get("speed"),
        }
        arrivals, load = next(
            ((kind, value) for kind, value in kinds.items() if value is not None), (CLIENTS, None)
        )
        keys = timing.keys(runs, measured, str(level.get("variant"))) | {
            "arrivals": arrivals,
            "load": load,
        }
        yield from _level(keys, level, join(_described(measured), level.get("busy") or ""))
    yield from timing.unsupported(runs, measured, TAIL)


def _level(keys: Mapping[str, Any], level: Mapping[str, Any], note: str) -> Iterator[Cell]:
    summary = level.get("summary")
    if not summary:
        yield Cell(keys, TAIL, Measure(reason=f"refused: {level.get('refused') or ''}"))
        return
    requests = summary["requests"]
    failed = summary.get("failed", 0)
    more: dict[str, Any] = {
        "note": join(note, timing.failures(failed, requests)),
        "source": CellSource.LATENCY,
    }
    for time in TIMES:
        for percentile, of in (summary.get(time) or {}).items():
            quantity = f"{time.removesuffix('_s')}_{percentile}_s"
            yield Cell(
                keys,
                quantity,
                Measure(of["value"], of["low"], of["high"], requests - failed, **more),
            )
    for rate in RATES:  # over all requests
        yield Cell(keys, rate, Measure(summary[rate], n=requests, **more))


def _described(load: Mapping[str, Any]) -> str:
    protocol = load.get("protocol") or {}
    limits = {"first token": "target_first_token_s", "each further token": "target_per_token_s"}
    targets = [
        f"{what} within {protocol[key]:g} s" for what, key in limits.items() if protocol.get(key)
    ]
    served = protocol.get("device") == SERVER
    state = (
        f"cache {protocol['cache']}"
        if served
        else f"documents {protocol.get('documents', '?')}, {protocol.get('dtype')}"
    )
    trace = protocol.get("trace")
    length = "the trace's" if trace else protocol.get("new_tokens", "?")
    tokens = join(
        f"{length} tokens a response", f"text of the prompts {trace['text']}" if trace else ""
    )
    return f"{tokens}, {state} on {place(load)}; goodput: {', '.join(targets) or 'no target'}"
