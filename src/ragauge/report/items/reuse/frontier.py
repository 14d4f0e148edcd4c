"""Methods that reuse keys and values: quality against time to first token, by the option that trades them.

What this shows: for each variant on the data sets on which a method was run at several values of
that option (`knob`), the primary metric with its interval, the median seconds to the first token,
and the probability that no other variant is at least as good and as fast, over bootstrap resamples
of the shared questions. A curve connects variants that differ in the knob alone, labelled with its
value. The dashed staircase is the frontier of the means; a filled point is on it with a probability
of one half or more. The gold documents alone are a reference and excluded. `state` is what was read
before the question (docs/protocols.md); a panel has one state alone.

Limits: `reuse_table` has the work before the question. Where the plain prompt is hardly ever right,
differences mean nothing, and note and panel say so. The best point on these questions looks better
than it is: choose the knob on other questions (docs/reuse.md).
"""

from collections import defaultdict
from dataclasses import replace

from ragauge.config.reads import Reads
from ragauge.report.figures import Figure, Panel, Point, lines
from ragauge.report.items._frontier import (
    LIKELY,
    by_state,
    has_run_times,
    latencies,
    on_frontier,
    plane,
)
from ragauge.report.items.reuse._family import (
    AT_FLOOR,
    KNOBS,
    RANKERS,
    answers,
    belongs,
    curve,
    floor,
    knob,
)
from ragauge.results.cells import Cell, Cells, Table, frame, noted
from ragauge.results.measures import REFERENCES, metric_name, quality
from ragauge.results.runs import Group, Runs
from ragauge.results.times import STATE_WORDS, State

KEYS = (
    "model",
    "dataset",
    "state",
    "method",
    "variant",
    "curve",
    "knob",
    "value",
    "metric",
)
CHANCE = "frontier_probability"
FIRST = "first_token_s"

READS = Reads(answers=answers(*REFERENCES, *RANKERS), latency="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, by_state(runs, _group))


def draw(table: Table) -> Figure:
    panels = [
        _panel(f"{model} · {dataset}\nbefore the question: {STATE_WORDS[str(state)]}", part)
        for (model, dataset, state), part in table.groupby(
            ["model", "dataset", "state"], sort=False
        )
    ]
    nothing = "Nothing to draw yet: no method was run at several values of its option."
    return lines.draw(panels, columns=2, height_in=2.9, nothing=nothing)


def _group(group: Group, state: State) -> Cells:
    variants = [v for v in group.variants if belongs(v, *REFERENCES, *RANKERS) and v.has_responses]
    values: dict[str, set[str]] = defaultdict(set)
    for variant in variants:
        values[curve(variant)].add(str(knob(variant)))
    if max(map(len, values.values()), default=0) < 2:
        return
    weak = floor(group.naive)
    prices = latencies(group, variants, FIRST, state)
    chances = on_frontier(group, variants, prices)
    for variant, price in zip(variants, prices, strict=True):
        value = knob(variant)
        keys = variant.keys | {
            "state": state,
            "curve": curve(variant),
            "knob": KNOBS.get(variant.method, ""),
            "value": "" if value is None else value,
            "metric": metric_name(group),
        }
        yield Cell(keys, "quality", noted(quality(variant), weak))
        yield Cell(keys, FIRST, price)
        if variant.name in chances:
            yield Cell(keys, CHANCE, noted(chances[variant.name], weak))


def _panel(title: str, part: Table) -> Panel:
    notes = f"\n{AT_FLOOR}" if part["note"].str.contains(AT_FLOOR).any() else ""
    origin = "answering run" if has_run_times(part, FIRST) else "latency protocol"
    return plane(title + notes, part, FIRST, f"first token (s), {origin}", CHANCE, _placed)


def _placed(point: Point, probability: float) -> Point:
    """The point in its curve, labelled with the value of the knob and what distinguishes the curve."""
    keys = point.row.keys
    _, _, others = keys["curve"].partition(", ")
    label = ""
    if keys["value"] != "":
        label = f"{others.partition(',')[0].replace('_', ' ')} {keys['value']:g}".strip()
    shown = replace(point, curve=keys["curve"], order=keys["value"] or 0, label=label)
    if probability >= LIKELY:
        return shown
    return replace(shown, hollow=True, y_interval=lines.NO_INTERVAL)
