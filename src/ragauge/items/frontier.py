"""All methods on one plane: quality against what an answer costs its user, in compute cycles and in seconds.

Shows every variant of the run: its primary metric against its mean compute cycles on the critical path as it ran here
(generated tokens included, what was prepared before the question counted as nothing), and against its online latency.
The probability of being on the frontier is over bootstrap resamples of the questions that all variants were asked;
the gold documents alone are a reference point and take no place on it. Latency is the median of the latency protocol
where the model was timed on prompts of that data set; elsewhere the median of the answering run, which other work on
the machine may have disturbed: the axis says which.

Does not show: offline cost and memory. Two variants of one panel were measured on one machine; two panels need not be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.rendering import panels, style
from ragauge.rendering.style import Axes, Figure
from ragauge.results import timing
from ragauge.results.cells import Cell, Measure, Source, Table, frame, join, noted
from ragauge.results.costs import cost, costs, online_cycles
from ragauge.results.measures import quality, scored
from ragauge.results.reads import Reads, every
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import frontier_probability

KEYS = ("model", "dataset", "method", "variant", "top_k", "metric")
LIKELY = 0.5  # probability of being on the frontier from which a point is drawn in full and named
REFERENCES = ("oracle",)  # no method could know which documents are gold
COSTS = {"online_cycles": "compute cycles (online MACs)", "online_latency_s": "online latency (s)"}

READS = Reads(answers=(every(),), latency="any")


def table(runs: Runs) -> Table:
    """One line for each (variant, quantity): quality, both costs, and the probability of being on each frontier."""
    return frame(KEYS, [cell for group in runs.groups() for cell in _group(runs, *group)])


def draw(table: Table) -> Figure:
    """A row of panels a (model, data set): quality against cycles, and against latency."""
    groups = list(table.groupby(["model", "dataset"], sort=False))
    if not groups:
        return style.empty("No records of this run yet: the frontier needs at least one answered variant.")
    with style.theme():
        figure = style.figure(style.TEXT_IN, 2.35 * len(groups) + 0.45)
        grid = figure.subplots(len(groups), len(COSTS), sharey="row", squeeze=False)
        for line, ((model, dataset), part) in zip(grid, groups, strict=True):
            for place, (ax, quantity) in enumerate(zip(line, COSTS, strict=True)):
                _panel(ax, part, quantity)
                ax.set_title(f"{model} · {dataset}" if place == 0 else "", loc="left", color=style.MUTED, pad=3)
            line[0].set_ylabel(str(part["metric"].iloc[0]))
        style.legend(figure, panels.method_handles(table["method"]), columns=6)
        return figure


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    variants = [v for v in runs.of(dataset, model) if len(v.failed) < len(v.records)]
    prices = {
        "online_cycles": [cost(runs, v, online_cycles) for v in variants],
        "online_latency_s": _latencies(runs, dataset, model, variants),
    }
    cells = [_cell(runs, v, "quality", noted(quality(runs, v), f"quality is {_metric(runs, v)}")) for v in variants]
    for quantity, measures in prices.items():
        cells += [_cell(runs, v, quantity, m) for v, m in zip(variants, measures, strict=True)]
        cells += _on_frontier(runs, variants, measures, quantity)
    return sorted(cells, key=lambda c: [v.name for v in variants].index(c.keys["variant"]))


def _cell(runs: Runs, variant: Variant, quantity: str, measure: Measure) -> Cell:
    return Cell(variant.keys | {"metric": _metric(runs, variant)}, quantity, measure)


def _metric(runs: Runs, variant: Variant) -> str:
    """The name of the data set's primary metric, which is the quality."""
    metric = runs.metrics(variant.dataset)[0]
    return {"best_subspan_em": "best EM subspan", "f1": "F1", "em": "EM"}.get(metric, metric.replace("_", " "))


def _latencies(runs: Runs, dataset: str, model: str, variants: Sequence[Variant]) -> list[Measure]:
    """Of the protocol for all variants, or of the answering run for all: the two are never on one plane."""
    timed = timing.find(runs, dataset, model)
    if timed is None or timed.get("refused"):
        return [_answering_latency(v) for v in variants]
    return [_protocol_latency(timed, v) for v in variants]


def _protocol_latency(latency: Mapping[str, Any], variant: Variant) -> Measure:
    values = timing.seconds(latency, variant.name)
    note = f"latency protocol on prompts of {latency['dataset']}"
    return timing.quartiles(values, join(note, timing.described(latency))) if values else Measure(reason="not timed")


def _answering_latency(variant: Variant) -> Measure:
    values = [r["online_s"] for k, r in variant.records.items() if k not in variant.failed and r["online_s"]]
    note = "latency of the answering run, not of the latency protocol"
    known = [v for v in values if v == v]
    if not known and any(r.get("batch", 1) > 1 for r in variant.records.values()):
        return Measure(reason="answered side by side, so without a latency")
    return timing.quartiles(known, note, Source.RECORDS) if known else Measure(reason="no clock")


def _on_frontier(runs: Runs, variants: Sequence[Variant], prices: Sequence[Measure], quantity: str) -> list[Cell]:
    """The bootstrap probability of each variant that has a price, over the questions that all of those share."""
    pairs = zip(variants, prices, strict=True)
    priced = [(v, m) for v, m in pairs if m.value is not None and v.method not in REFERENCES]
    scores = [scored(runs, v) for v, _ in priced]
    shared = [k for k in (scores[0] if scores else {}) if all(k in s for s in scores)]
    if not shared:
        return []
    price = [_by_question(v, m, shared, quantity) for v, m in priced]
    found = frontier_probability(price, [[s[k] for k in shared] for s in scores], seed=runs.seed)
    name = f"frontier_probability_{quantity.removeprefix('online_').removesuffix('_s')}"
    return [_cell(runs, v, name, Measure(float(p), n=len(shared))) for (v, _), p in zip(priced, found, strict=True)]


def _by_question(variant: Variant, price: Measure, shared: Sequence[str], quantity: str) -> list[float]:
    """The price of each question; the mean where the question has none of its own (it failed, or was not timed)."""
    own = costs(variant, online_cycles) if quantity == "online_cycles" else {}
    return [own.get(key, price.value or 0.0) for key in shared]


def _panel(ax: Axes, part: Table, quantity: str) -> None:
    cells = {(c["variant"], c["quantity"]): c for c in part.to_dict("records")}
    name = f"frontier_probability_{quantity.removeprefix('online_').removesuffix('_s')}"
    drawn = [
        (v, cells[v, "quality"], cells[v, quantity], cells.get((v, name), {}).get("measured", 0.0))
        for v in part["variant"].unique()
        if (v, "quality") in cells and (v, quantity) in cells and _known(cells[v, "quality"], cells[v, quantity])
    ]
    ax.grid(axis="both")
    run_only = any(c["source"] == Source.RECORDS for _, _, c, _ in drawn)
    ax.set_xlabel(COSTS[quantity] + (", answering run" if run_only else ""))
    best = _steps([(c["measured"], q["measured"]) for _, q, c, _ in drawn if q["method"] not in REFERENCES])
    ax.plot(*zip(*best, strict=True) if best else ([], []), color=style.MUTED, lw=0.8, ls=(0, (3, 2)), zorder=1)
    for _, up, across, probability in sorted(drawn, key=lambda d: d[3]):
        _point(ax, up, across, probability)
    panels.log_axis(ax, [c["measured"] for _, _, c, _ in drawn])
    ax.set_ylim(0, max(ax.get_ylim()[1], 0.05))
    _name(ax, [(f"{v} {p:.2f}", c["measured"], q["measured"]) for v, q, c, p in drawn if p >= LIKELY])


def _point(ax: Axes, up: Mapping[Any, Any], across: Mapping[Any, Any], probability: float) -> None:
    """Filled, with its interval, where the variant is likely on the frontier, pale where not."""
    _, colour, marker = style.method_style(str(up["method"]))
    likely = probability >= LIKELY
    x, y, size = across["measured"], up["measured"], style.marker_size(marker)
    ax.plot(x, y, marker, color=colour, alpha=1.0 if likely else 0.4, ms=size, mew=0, zorder=4 if likely else 3)
    if likely:
        panels.interval(ax, x, y, up["low"], up["high"], colour, vertical=True)


def _name(ax: Axes, labels: Sequence[tuple[str, float, float]]) -> None:
    """Names beside points, each moved up until it is clear of those below it."""
    low, high = (math.log10(edge) for edge in ax.get_xlim())
    top = ax.get_ylim()[1]
    taken: list[tuple[float, float]] = []
    for text, x, y in sorted(labels, key=lambda label: label[2]):
        across, up = (math.log10(x) - low) / (high - low), y / top + 0.015
        while any(abs(across - a) < 0.3 and abs(up - u) < 0.05 for a, u in taken):
            up += 0.01
        taken.append((across, up))
        right = across > 0.75
        ax.text(
            across + (-0.015 if right else 0.015),
            up,
            text.replace("_", " "),
            transform=ax.transAxes,
            ha="right" if right else "left",
            fontsize=5.6,
            color=style.INK,
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            zorder=5,
        )


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The staircase of the best quality at or below each cost."""
    stairs: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda p: (p[0], -p[1])):
        if not stairs or y > stairs[-1][1]:
            stairs += [(x, stairs[-1][1]), (x, y)] if stairs else [(x, y)]
    return stairs


def _known(*cells: Mapping[Any, Any]) -> bool:
    return all(math.isfinite(cell["measured"]) for cell in cells)
