"""Quality and wait of every method over the length of the context, on RULER's tasks.

What this shows: on the data sets `ruler` and `ruler_qa`, for each task, model and variant the
primary metric with its interval and the seconds to the first token, over `tokens`, the median tokens
of all documents of a question. `state` is what was read before the question (docs/protocols.md).
Lines that cross say from which length on reuse, compression, superposition or ranking is better or
sooner than another.

Limits: needles stand among made-up sentences that say nothing else. Rankers of single words cannot
find them, but two words of the question that follow one another, the needle's key, do
(docs/data-sets.md): what looks for the question's words in their order finds every one. More tokens
are more documents, or longer ones, as the data set's options say.
"""

from statistics import median

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Figure, Lines, Panel, lines
from ragauge.report.items._frontier import by_state, latencies
from ragauge.results.cells import Cells, Table, frame, row_cells
from ragauge.results.measures import metric_name, quality
from ragauge.results.runs import Group, Runs
from ragauge.results.times import State

KEYS = ("model", "task", "dataset", "state", "method", "variant", "tokens", "metric")
TITLE = "{} · {}\nbefore the question: {}"
X = Axis("tokens of documents", "base2")
DRAWN = {
    "quality": Axis("quality", from_zero=True),
    "first_token_s": Axis("first token (s)", "log"),
}

READS = Reads(answers=(every(),), latency="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, by_state(runs, _cells))


def draw(table: Table) -> Figure:
    measured = set(table.dropna(subset=["measured"])["quantity"])  # a run may have no times
    drawn = {quantity: y for quantity, y in DRAWN.items() if quantity in measured}
    panels = []
    for key, part in table.groupby(["model", "task", "state"], sort=False):
        for quantity, y in drawn.items():
            plot = Lines("tokens", X, quantity, y, line=lines.variant)
            panels.append(Panel(TITLE.format(*key), X, y, plot.points(part)))
    return lines.draw(
        panels, columns=2, nothing="Nothing to draw yet: no answers on RULER's tasks."
    )


def _cells(group: Group, state: State) -> Cells:
    if not group.runs.registered(group.dataset).startswith("ruler"):
        return
    variants = [v for v in group.variants if v.answered]
    waits = latencies(group, variants, "first_token_s", state)
    for variant, wait in zip(variants, waits, strict=True):
        keys = variant.keys | {
            "task": group.runs.dataset_options(group.dataset).get("task", "qa"),
            "state": state,
            "tokens": median(sum(r.tokens["documents"]) for r in variant.answered.values()),
            "metric": metric_name(group),
        }
        yield from row_cells(keys, {"quality": quality(variant), "first_token_s": wait})
