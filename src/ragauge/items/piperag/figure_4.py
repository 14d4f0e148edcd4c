"""PipeRAG, Figure 4: the size of the database against perplexity.

Shows the perplexity of each schedule over indexes of the first shards of a database, against the chunks that they hold;
with and without near-duplicates of the evaluation text are separate lines.

Does not show: the paper's curves, for which it prints no numbers; the table has the perplexities in the logs that its
repository ships. Indexes that were filled with drawn vectors hold no more text and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragauge.items.piperag import _published
from ragauge.rendering import panels, pipelines_footer, piperag_panels
from ragauge.rendering.style import Figure
from ragauge.results import sequences
from ragauge.results.cells import Cell, Measure, Table
from ragauge.results.pipelines import Text
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs
from ragauge.results.systems import KINDS, System, grouped

SIZE = "database_chunks"
DUPLICATES = "near_duplicates"
ONE_SIZE = "No system of this run asked databases of two sizes; the table has what there is."
footer = pipelines_footer.footer

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, index, quantity)."""
    return grouped(runs, _group, _published.logged(swept=False))


def draw(table: Table) -> Figure:
    """Perplexity against chunks, one line per system that was run over several sizes."""
    line = piperag_panels.with_interval_and_lists
    points = piperag_panels.plane_points(table, SIZE, "perplexity", line, ("measured",))
    dropping = piperag_panels.plane_points(table, SIZE, "perplexity", _line_without_duplicates, ("measured",))
    grown = piperag_panels.swept(points)
    shown = [p for p, other in zip(points, dropping, strict=True) if {p.line, other.line} & grown]
    axis = panels.Axis("chunks in the database", log=True)
    return piperag_panels.draw(shown, axis, piperag_panels.PERPLEXITY, nothing=ONE_SIZE)


def _line_without_duplicates(row: Mapping[str, Any]) -> str:
    """The line of the same system over indexes without near-duplicates."""
    return piperag_panels.with_interval_and_lists({**row, "options": row["options"].without(DUPLICATES)})


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    """The systems over each index that holds nothing but text; and those that ask none."""
    shown = [s for s in group if s.kind in ("no_retrieval", "random")]
    shown += [s for s in group if s.index and not s.index.filled]
    shared = sequences.shared_keys(shown)
    return [cell for system in shown for cell in _cells(runs, group, system, shared)]


def _cells(runs: Runs, group: Sequence[System], system: System, shared: set[Text]) -> Iterator[Cell]:
    facts = system.index_facts
    kept = facts is not None and facts.settings.get(DUPLICATES) == "keep"
    keys = system.keys | {"options": system.options.having(DUPLICATES, "keep") if kept else system.options}
    for cell in sequences.quality(runs, group, system, shared):
        yield replace(cell, keys=keys)
    if facts is not None and facts.vectors is None:
        yield Cell(keys, SIZE, Measure(reason="not known: no recall.json of this index"))
    elif facts is not None:
        shards = facts.settings.get("shards")
        note = f"the first {shards} shards" if shards else ""
        yield Cell(keys, SIZE, Measure(float(facts.vectors or 0), n=1, note=note))
