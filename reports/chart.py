"""Draw the chart of the first page from a run's table: quality against seconds, in two panels.

    python reports/chart.py reference-like-with-like nq_open qwen2.5-coder-1.5b-instruct docs/chart.svg

The left panel is of a service that has read each document before the question, the right one of a
service that has read exactly this list, where the full prompt's beginning is cached. Seconds are of
answers as long as those that are scored. Superposition's variants are told apart by their names.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from figures import ROOT, table
from ragauge.errors import UserError
from ragauge.report.figures import Axis, Figure, Lines, Panel, Point, lines
from ragauge.report.figures.writing import figure_bytes
from ragauge.results.cells import CellSource, Table
from ragauge.results.measures import REFERENCES

STATES = {
    "documents": "before the question, the service has read\neach document",
    "set": "before the question, the service has read\nexactly this list",
}
SECONDS = "online_latency_s"
FULL_PROMPT = {"documents": "full prompt", "set": "full prompt, prefix cached"}
NAMED = (*REFERENCES, "superposition", "dense", "prompt_cache", "parallel_experts")
OTHERS = "other methods, in the report"


def chart(frontier: Table, dataset: str, model: str) -> Figure:
    """Return the two panels of a data set and model, from the table of the item `frontier`.

    Raises:
        UserError: the full prompt has no times of the latency protocol for them in both states.
    """
    part = frontier[(frontier["dataset"] == dataset) & (frontier["model"] == model)]
    timed = part[(part["quantity"] == SECONDS) & (part["source"] == CellSource.LATENCY)]
    full = timed[(timed["method"] == "naive") & timed["measured"].notna()]
    missing = [state for state in STATES if state not in set(full["state"])]
    if missing:
        states = " or ".join(missing)
        raise UserError(
            f"{model} on {dataset}: the full prompt was not timed in the state {states}"
        )
    x = Axis("seconds of an answer", "log")
    y = Axis(str(part["metric"].iloc[0]), from_zero=True)
    plot = Lines(SECONDS, x, "quality", y)
    panels = []
    for state, title in STATES.items():
        points = plot.points(part[part["state"] == state])
        shown = [_named(point, state) for point in points]
        stairs = lines.steps((p.x, p.y) for p in points if p.look not in REFERENCES)
        panels.append(Panel(title, x, y, shown, join="none", stairs=stairs))
    return lines.draw(panels, columns=2, height_in=2.9, share=True)


def _named(point: Point, state: str) -> Point:
    if point.look == "naive":
        return replace(point, label=FULL_PROMPT[state], line="full prompt")
    if point.look.partition(":")[0] in NAMED:
        return replace(point, label="", line=str(point.row.keys["variant"]).replace("_", " "))
    return replace(point, label="", look="others", line=OTHERS, y_interval=lines.NO_INTERVAL)


def main(arguments: Iterable[str]) -> None:
    run, dataset, model, out = arguments
    figure = chart(table(ROOT / run / "frontier.csv"), dataset, model)
    small_print = f"reports/{run}/frontier.csv; {model} on {dataset}; intervals: 95%"
    kind = Path(out).suffix.removeprefix(".")
    Path(out).write_bytes(figure_bytes(figure, small_print)[kind])


if __name__ == "__main__":
    main(sys.argv[1:])
