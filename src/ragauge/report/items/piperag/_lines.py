"""Points of PipeRAG's figures: panels by index, lines by schedule, intervals of paired differences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ragauge.report.figures import Axis, Figure, Lines, Point, TableRow, style
from ragauge.results.cells import Keys, Line, Table
from ragauge.results.sequences import AGAINST_NONE

PAPER = "the paper's RETRO"  # the model of the paper's rows
PERPLEXITY = Axis("perplexity")
RELATIVE = Axis("perplexity, change from no retrieval (%)", is_difference=True)
SECONDS = Axis("latency of a sequence (s)", from_zero=True)


@dataclass(frozen=True)
class SystemLines(Lines):
    """A line plot of systems, one of its axes perplexity: what asks no index is in the panels of
    all indexes.
    """

    columns: Sequence[str] = ("measured",)
    kinds: Sequence[str] = ()  # schedules that are drawn; all of the table by default

    def points(self, table: Table) -> list[Point]:
        points = super().points(table[table["method"].isin(self.kinds)] if self.kinds else table)
        measured = [point.row for point in points if not point.published]
        placed = list[Point]()
        for point in points:
            shown = replace(point, label=_label(point.row))
            if not point.published:
                interval = _interval(point.row)
                shown = (
                    replace(shown, y_interval=interval)
                    if self.y == "perplexity"
                    else replace(shown, x_interval=interval)
                )
            placed += [replace(shown, panel=panel) for panel in _panels(point, measured)]
        return placed


@dataclass(frozen=True)
class Frontiers(SystemLines):
    """Latency against perplexity as in the paper, relative to no retrieval's, which is written in
    the title: panels of several models and texts have one scale.
    """

    def draw(self, points: Iterable[Point]) -> Figure:
        all_points = list(points)
        plain = {p.panel: p for p in all_points if p.look == "no_retrieval"}
        drawn = [p for p in all_points if p.look != "no_retrieval"]
        if not drawn or any(p.panel not in plain for p in drawn):
            return super().draw(drawn or all_points)
        relative = [_relative(p, plain[p.panel]) for p in drawn]
        return super(Frontiers, replace(self, x_axis=RELATIVE)).draw(relative)


def schedule(row: TableRow) -> str:
    """A row's line in a plane: its schedule, with its options."""
    label = style.method_label(row.keys["method"])
    return f"{label}, {row.keys['options']}" if row.keys["options"] else label


def with_interval(row: TableRow) -> str:
    """A row's line over nprobe: its schedule and interval; of the paper's logs the database too."""
    keys = row.keys
    parts = [schedule(row)]
    if keys["method"] in ("retro_plus", "piperag", "random") and keys["interval"]:
        parts.append(f"m = {keys['interval']}")
    if keys["model"] == PAPER and keys["index"]:
        parts.append(str(keys["index"]).replace("_", " "))
    return ", ".join(parts)


def with_lists(label: str, row: TableRow) -> str:
    """A row's line with the lists that searches scan, where they scan any."""
    nprobe = row.keys["nprobe"]
    return f"{label}, nprobe {nprobe}" if nprobe else label


def database(keys: Line, mark: str) -> str:
    """Return the database of a row behind a mark; empty where a text has neighbours from one alone."""
    return f"{mark}database {keys['database']}" if keys.get("database") else ""


FRONTIERS = Frontiers(
    "perplexity", PERPLEXITY, "latency_s", SECONDS, schedule, join="best", across=2
)


def _relative(point: Point, plain: Point) -> Point:
    """The point with its perplexity as the change from that of no retrieval, in per cent."""
    low, high = point.x_interval
    x, low, high = (100 * (value / plain.x - 1) for value in (point.x, low, high))
    title = f"{point.panel}\nno retrieval: {plain.y:.3g} s, perplexity {plain.x:.4g}"
    return replace(point, panel=title, x=x, x_interval=(low, high))


def _interval(row: TableRow) -> tuple[float, float]:
    """The interval of the paired difference from no retrieval, around a perplexity: all systems
    read the same texts.
    """
    value = row.number("perplexity")
    nats = row.number(AGAINST_NONE)
    low, high = (value * math.exp(end - nats) for end in row.interval(AGAINST_NONE))
    return low, high


def _panels(point: Point, measured: Iterable[TableRow]) -> list[str]:
    """The titles of a point's panels: its own, or those of all indexes of its database for a system
    without one.
    """
    keys = point.row.keys
    alike = list[Keys]()
    if not keys["index"] and not point.published:
        same = [name for name in ("model", "dataset", "database") if keys.get(name)]
        alike = [
            row.keys
            for row in measured
            if row.keys["index"] and all(row.keys[n] == keys[n] for n in same)
        ]
    sources = [(other, getattr(other["index"], "filled", None)) for other in alike or [keys]]
    filled = [
        database(other, "\n") + (f"\nindex filled to {count:,}" if count else "")
        for other, count in sources
    ]
    return [point.panel + place for place in dict.fromkeys(filled)]


def _label(row: TableRow) -> str:
    """Label a point by what distinguishes it on its line: interval and nprobe."""
    keys = row.keys
    interval = (
        f"m{keys['interval']}"
        if keys["interval"] and keys["method"] in ("retro_plus", "piperag")
        else ""
    )
    nprobe = str(keys["nprobe"])
    return f"{interval} {nprobe if nprobe in ('', 'hide') else f'n{nprobe}'}".strip()
