"""Time to first token and goodput under load.

What this shows: for each method under the load protocol, the 95th percentile of the time to first
token over the rate of Poisson arrivals, with queueing, and the answers a second that met the
targets (goodput) over the rate and over the number of clients. In the table also p50, p99, the time
of each further token, the questions and tokens a second that were answered, and of a search
(`--find`) the highest rate and number of clients that met the targets: `low` is that load, `high`
the lowest that missed them. Clients that ask one question after another have rows of their own, and
so has a replayed trace. `steady` rates are those while requests arrive, or while all clients wait
for an answer.
Intervals are of a block bootstrap over successive requests; `load` is a rate in questions a second,
a number of clients or the speed of a trace.

Limits: a growing queue is marked in a search alone. Where fewer questions a second are answered
than arrive, the wait grows with more requests.
"""

from functools import partial

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Lines, Panel, lines
from ragauge.results import timing
from ragauge.results.capacity import capacities
from ragauge.results.cells import Cell, Cells, CellSource, Keys, Measure, Table, frame, join
from ragauge.results.provenance import place
from ragauge.results.runs import Runs
from ragauge.results.times import STATE_WORDS, LoadLevel, LoadTimes, remarks

KEYS = ("model", "dataset", "method", "variant", "arrivals", "load")
POISSON = "poisson"
CLIENTS = "clients"
TAIL = "first_token_p95_s"
GOODPUT = "goodput_per_s"
TIMES = ("first_token_s", "per_token_s")
RATES = ("questions_per_s", "tokens_per_s", GOODPUT)

READS = Reads(load="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, _cells(runs))


def draw(table: Table) -> Figure:
    rate = Axis("Poisson arrivals (questions/s)", from_zero=True)
    number = Axis("clients", from_zero=True)
    tail = Axis("time to first token, p95 (s)", "log")
    good = Axis("goodput (questions/s)", from_zero=True)
    panels = list[Panel]()
    for arrivals, x, quantity, y in (
        (POISSON, rate, TAIL, tail),
        (POISSON, rate, GOODPUT, good),
        (CLIENTS, number, GOODPUT, good),
    ):
        plot = Lines("load", x, quantity, y, lines.variant)
        panels += plot.panels(plot.points(table[table["arrivals"] == arrivals]))
    return lines.draw(panels, nothing="Nothing to draw yet: no model was measured under load.")


def _cells(runs: Runs) -> Cells:
    for times in runs.loads:
        for level in times.levels:
            arrivals = POISSON if level.rate else "trace" if level.speed else CLIENTS
            keys = timing.keys(runs, times, level.variant)
            keys |= {"arrivals": arrivals, "load": level.load}
            yield from _level(keys, level, join(_described(times), level.busy or ""))
        for found in capacities(times) if times.protocol.find else ():
            arrivals = POISSON if found.arrivals == "rate" else CLIENTS
            keys = timing.keys(runs, times, found.variant) | {"arrivals": arrivals}
            note = join(found.described(), _described(times))
            reason = "" if found.met else "no load met the targets"
            bounds = (found.met, found.met, found.missed)
            measure = Measure(*bounds, note=note, reason=reason, source=CellSource.LATENCY)
            yield Cell(keys, f"highest_{found.arrivals}", measure)
        yield from timing.unsupported(runs, times, TAIL)


def _level(keys: Keys, level: LoadLevel, note: str) -> Cells:
    summary = level.summary
    if not summary.requests:
        yield Cell(
            keys, TAIL, Measure(reason=join(f"refused: {level.refused or ''}", *level.remarks))
        )
        return
    measured = partial(
        Measure,
        note=join(
            note,
            *level.remarks,
            timing.failures(summary.failed, summary.requests),
            *remarks(level.requests),
        ),
        source=CellSource.LATENCY,
    )
    n = summary.requests - summary.failed
    for time in TIMES:
        for name, percentile in getattr(summary, time) or ():
            quantity = f"{time.removesuffix('_s')}_{name}_s"
            value = measured(percentile.value, percentile.low, percentile.high, n)
            yield Cell(keys, quantity, value)
    for prefix, rates in (("", summary), ("steady_", summary.steady)):
        for rate in RATES:  # over all requests
            if rates and getattr(rates, rate) is not None:
                yield Cell(keys, prefix + rate, measured(getattr(rates, rate), n=rates.requests))


def _described(load: LoadTimes) -> str:
    protocol = load.protocol
    state = f"documents {protocol.documents}, {protocol.dtype}"
    if protocol.state:
        state = f"before the question: {STATE_WORDS[protocol.state]}, {protocol.dtype}"
    if protocol.is_served:
        state = f"cache {protocol.cache}"
    trace = protocol.trace
    length = "the trace's" if trace else protocol.new_tokens
    tokens = join(
        f"{length} tokens a response", f"text of the prompts {trace.text}" if trace else ""
    )
    return f"{tokens}, {state} on {place(load)}; goodput: {protocol.limits or 'no target'}"
