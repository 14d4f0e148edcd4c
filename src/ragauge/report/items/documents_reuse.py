"""Documents' keys and values on disk: costs and savings.

What this shows: for each variant that reads documents before the question, the seconds of
computing, writing and reading them and of the rest of the answer (medians of the latency protocol),
and the bytes of a prompt's documents there; the mean latency when 0 to 100% of the questions find
their documents on disk; how often documents must be used again until storing them has paid; and
from how many questions, and from which hit rate, the total time is below naive's. Stored documents
equal computed ones bit for bit, so quality is the same at every hit rate.

Limits: Table 7 has documents that stay in memory; the price of the disk is not counted. Reading was
timed from the disk of the result's folder with a cold system cache; another disk gives other
numbers.
"""

import statistics
from functools import partial

from ragauge.config.reads import Reads, timed
from ragauge.report.figures import Axis, Figure, Lines, lines
from ragauge.results import timing
from ragauge.results.cells import (
    Cell,
    Cells,
    CellSource,
    Keys,
    Measure,
    Table,
    frame,
    noted,
    row_cells,
)
from ragauge.results.measures import quality
from ragauge.results.reuse import (
    Seconds,
    break_even_hit_rate,
    break_even_questions,
    break_even_reuses,
)
from ragauge.results.runs import Group, Runs
from ragauge.results.times import LatencyTimes

KEYS = ("model", "dataset", "method", "variant", "hit_rate")
HIT_RATES = tuple(percent / 100 for percent in range(0, 101, 10))
LATENCY = "mean_latency_s"
MEDIANS = ("computing_s", "missed_s", "loading_s", "bytes")  # of trials
UNTIMED = "not timed: the latency protocol ran without the state `disk`"

Timed = partial(Measure, source=CellSource.LATENCY)

READS = Reads(answers=(timed(),), latency="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, (cell for latency in runs.latencies for cell in _protocol(runs, latency)))


def draw(table: Table) -> Figure:
    share = Axis("questions whose documents are on disk (%)")
    latency = Axis("mean latency (s)", from_zero=True)
    nothing = "Nothing to draw yet: no latency file has documents timed from disk."
    plot = Lines(
        "percent",
        share,
        LATENCY,
        latency,
        lambda row: lines.variant(row).replace("_", " "),
        nothing=nothing,
    )
    return plot(
        table.assign(percent=[100 * rate if rate != "" else rate for rate in table["hit_rate"]])
    )


def _protocol(runs: Runs, latency: LatencyTimes) -> Cells:
    has_documents = latency.documents and latency.documents.rows
    naive = timing.naive_of(runs, latency)
    naive_times = latency.seconds(naive, state="nothing")
    naive_s = statistics.median(naive_times) if naive_times else None
    for name in latency.variants:
        online = latency.seconds(name, state=latency.usable.get(name))
        keys = timing.keys(runs, latency, name)
        trials = latency.document_trials(name)
        if latency.refused:
            yield Cell(keys, LATENCY, Measure(reason=f"timing refused: {latency.refused}"))
        elif name == naive and naive_times:
            for rate in HIT_RATES:
                yield Cell(keys | {"hit_rate": rate}, LATENCY, Timed(naive_s, n=len(naive_times)))
        elif not has_documents:
            yield Cell(keys, LATENCY, Measure(reason=UNTIMED))
        elif trials and online:
            computing, missed, loading, stored = (
                statistics.median(getattr(trial, name) for trial in trials) for name in MEDIANS
            )
            saving = max(0.0, missed - computing)  # what a miss takes beyond computing
            question_s = Seconds(computing, saving, loading, statistics.median(online))
            n = len(trials)
            note = timing.described(latency, f"{n} trials with cold documents")
            measured = partial(Timed, n=n, note=note)
            measures = {
                "computing_s": measured(computing),
                "saving_s": measured(saving),
                "loading_s": measured(loading),
                "online_s": Timed(
                    question_s.online_s, n=len(online), note=timing.described(latency)
                ),
                "stored_bytes": measured(stored),
            }
            yield from row_cells(keys, measures)
            yield from _variant(runs, keys, question_s, naive_s, n)


def _variant(runs: Runs, keys: Keys, seconds: Seconds, naive_s: float | None, n: int) -> Cells:
    """The cells of one variant that follow from its seconds; `n`: trials with cold documents."""
    for rate in HIT_RATES:
        yield Cell({**keys, "hit_rate": rate}, LATENCY, Timed(seconds.latency_s(rate), n=n))
    reuses = _or_never(break_even_reuses(seconds), n, "reading takes as long")
    measures = {"break_even_reuses": reuses}
    if naive_s is not None:
        never = "reading and answering take as long as naive"
        questions = break_even_questions(seconds, naive_s)
        hit_rate = break_even_hit_rate(seconds, naive_s)
        measures["break_even_questions"] = _or_never(questions, n, never)
        measures["break_even_hit_rate"] = _or_never(hit_rate, n, never)
    yield from row_cells(keys, measures)
    group = Group(runs, keys["dataset"], keys["model"])
    for variant in group.variants:
        if variant.name == keys["variant"]:
            yield Cell(keys, "quality", noted(quality(variant), "the same at every hit rate"))


def _or_never(value: float | None, n: int, never: str) -> Measure:
    return Measure(n=n, note=f"never: {never}") if value is None else Timed(value, n=n)
