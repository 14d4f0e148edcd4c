"""All methods on one plane: quality against compute cycles and against seconds.

What this shows: the primary metric of every variant against its mean compute cycles on the critical
path as it ran here (with generated tokens, without what was prepared before the question), and
against its online latency. The probability of being on the frontier is over bootstrap resamples of
the questions that variants share, costs held at their measured values; the gold documents alone,
which are a reference, and variants of far fewer questions have none. `state` is what was read before
the question (docs/protocols.md): rows and panels compare variants in one state alone, and
`preparation_s` and `preparation_bytes` are what it took to be in it. Latency is the median of the
latency protocol where it timed the model on that data set, with responses as long as the answers
where these were timed, else the median of the answering run, which other work may have disturbed:
the axis says which.

The figure has a row a model and data set, and a panel a state, against seconds where these are
known and else against cycles. Named are the variants on the frontier with a probability of one half
or more, the plain prompt and the gold documents.

A served model has panels of its own: its times are another stack's, with its cache. For its
variants the table also has the seconds of each further token, the cached part of the prompt, and
the price of 1,000 questions where the configuration states prices.

Limits: the preparation is not part of the cost. Points of one panel come from one machine; two
panels may not.
"""

from dataclasses import replace

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Figure, Panel, Point, lines, style
from ragauge.report.items._frontier import (
    LIKELY,
    by_state,
    has_run_times,
    latencies,
    on_frontier,
    plane,
    served,
)
from ragauge.results.cells import Cells, Table, frame, noted, row_cells
from ragauge.results.measures import REFERENCES, metric_name, quality
from ragauge.results.runs import ELSEWHERE, Group, Runs
from ragauge.results.states import online_cost, preparation
from ragauge.results.times import STATE_WORDS, State

KEYS = ("model", "dataset", "state", "method", "variant", "top_k", "metric")
# the first that is known is drawn
COSTS = {"online_latency_s": "online latency (s)", "online_cycles": "compute cycles"}

READS = Reads(answers=(every(),), latency="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, by_state(runs, _group))


def draw(table: Table) -> Figure:
    """A row of panels a model and data set, a panel a state in which they were timed: against
    seconds where these are known, else against compute cycles.
    """
    rows: dict[str, list[Panel]] = {}
    for (model, dataset, state), part in table.groupby(["model", "dataset", "state"], sort=False):
        stack = ", another stack" if part["note"].str.contains(ELSEWHERE).any() else ""
        title = f"{model}{stack}\n{dataset}\n{STATE_WORDS[str(state)]}"
        rows.setdefault(f"{model}\n{dataset}", []).append(_panel(title, part))
    panels = [panel for row in sorted(rows.values(), key=len, reverse=True) for panel in row]
    columns = max([2, *map(len, rows.values())])
    nothing = "No records of this run yet: the frontier needs at least one answered variant."
    return lines.draw(panels, columns=columns, height_in=2.35, nothing=nothing)


def _group(group: Group, state: State) -> Cells:
    variants = [v for v in group.variants if v.has_responses]
    prices = {
        "online_cycles": [online_cost(v, state) for v in variants],
        "online_latency_s": latencies(group, variants, "total_s", state),
    }
    metric = metric_name(group)
    chances = {
        quantity: on_frontier(group, variants, measures) for quantity, measures in prices.items()
    }
    for index, variant in enumerate(variants):
        note = f"quality is {metric}", (variant.stack and variant.engine) or ""
        measures = {"quality": noted(quality(variant), *note)} | (
            served(variant) if variant.stack else {}
        )
        for quantity, price in prices.items():
            chance = chances[quantity].get(variant.name)
            measures |= {quantity: price[index]} | ({_chance(quantity): chance} if chance else {})
        measures |= preparation(variant, group.timed, state)
        yield from row_cells(variant.keys | {"state": state, "metric": metric}, measures)


def _chance(quantity: str) -> str:
    """The quantity that is the probability of being on the frontier over a cost."""
    return f"frontier_probability_{quantity.removeprefix('online_').removesuffix('_s')}"


def _panel(title: str, part: Table) -> Panel:
    known = set(part[part["measured"].notna()]["quantity"])
    quantity = next((q for q in COSTS if q in known), "online_cycles")
    label = COSTS[quantity] + (", answering run" if has_run_times(part, quantity) else "")
    return plane(title, part, quantity, label, _chance(quantity), _placed, "none")


def _placed(point: Point, probability: float) -> Point:
    """The point, labelled where it is likely to be on the frontier; one of the others where not,
    the plain prompt and references apart.
    """
    name = point.row.keys["variant"].replace("_", " ")
    if probability >= LIKELY:
        return replace(point, label=f"{name} {probability:.2f}")
    bare = replace(point, y_interval=lines.NO_INTERVAL, x_interval=lines.NO_INTERVAL)
    if point.look in ("naive", *REFERENCES):
        return replace(bare, label=name)
    return replace(bare, look="others", line=style.method_label("others"))
