"""PipeRAG, Figure 4: the size of the database against perplexity.

What this shows: the perplexity of each schedule over indexes of the first shards of a database,
against their number of chunks; lines with and without near-duplicates of the evaluation text are
separate, and `near_duplicates_nats` is the paired difference between the two over the same shards:
what a database gains by holding nearly the text itself.

Limits: the paper prints no numbers for its curves; the table has the perplexities in the logs of
its repository. Those of one retrieval were scored with its neighbours encoded anew in every window
(`encoding: every_window` of `retrieve_once`; the default encodes them once). Indexes filled with
drawn vectors hold no more text and are left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Point, TableRow, lines
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Measure, Table, noted
from ragauge.results.pipelines import Options
from ragauge.results.runs import Runs
from ragauge.results.systems import KINDS, System, Systems, grouped

SIZE = "database_chunks"
DUPLICATES = "near_duplicates"
ASKED = attrgetter("database", "kind", "interval", "nprobe", "options")
ONE_SIZE = "No system of this run used databases of two sizes; the table has what there is."

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    return grouped(runs, _group, _published.logged(swept=False))


def draw(table: Table) -> Figure:
    def line(row: TableRow, options: Options) -> str:
        row = TableRow({**row.keys, "options": options}, row.cells)
        return _lines.with_lists(_lines.with_interval(row), row)

    def without(point: Point) -> str:
        others = (option for option in point.row.keys["options"] if option[0] != DUPLICATES)
        return point.panel + line(point.row, Options(others))

    plot = _lines.SystemLines(
        SIZE,
        Axis("chunks in the database", "log"),
        "perplexity",
        _lines.PERPLEXITY,
        lambda row: line(row, row.keys["options"]),
        nothing=ONE_SIZE,
    )
    points = plot.points(table)
    several = lines.swept(points)  # with those that differ from them in near-duplicates alone
    shown = {without(point) for point in points if point.line in several}
    return plot.draw([point for point in points if without(point) in shown])


def _group(group: Systems) -> Cells:
    """Yield the systems over each index that holds nothing but text; and those that ask none."""
    systems = [s for s in group if s.kind in ("no_retrieval", "random")]
    systems += [s for s in group if s.index and not s.index.filled]
    shared = sequences.shared_keys(systems)
    for system in systems:
        facts = system.index_facts
        more = ((DUPLICATES, "keep"),) if _settings(system).get(DUPLICATES) == "keep" else ()
        keys = system.keys | {"options": Options((*system.options, *more))}
        yield from (replace(cell, keys=keys) for cell in sequences.quality(group, system, shared))
        twin = next((s for s in systems if _is_twin(s, system)), None) if more else None
        if twin:
            gain = noted(
                sequences.difference(system.scored, twin.scored),
                f"kept minus dropped ({twin.index})",
            )
            yield Cell(keys, "near_duplicates_nats", gain)
        if facts and facts.vectors is None:
            yield Cell(keys, SIZE, Measure(reason="not known: no recall.json of this index"))
        elif facts:
            shards = _settings(system).get("shards")
            note = f"the first {shards} shards" if shards else ""
            yield Cell(keys, SIZE, Measure(facts.vectors or 0, n=1, note=note))


def _settings(system: System) -> Mapping[str, Any]:
    """Return the settings of a system's index; none where it asks no index."""
    return system.index_facts.settings if system.index_facts else {}


def _is_twin(other: System, system: System) -> bool:
    """Return whether the other asks the same shards alike, without near-duplicates of the text."""
    if other.index_facts is None or _settings(other).get(DUPLICATES) == "keep":
        return False
    shards, own_shards = (_settings(s).get("shards") for s in (other, system))
    return shards == own_shards and ASKED(other) == ASKED(system)
