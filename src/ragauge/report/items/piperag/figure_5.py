"""PipeRAG, Figure 5: nprobe and retrieval interval against perplexity.

What this shows: the perplexity of RETRO, RETRO+ and PipeRAG against the inverted lists that a
search scans, a line an interval. An nprobe that hides the search is no fixed one and not drawn.

Limits: Figure 6 has latency. The paper prints no numbers for its curves; the shaded panels show the
logs of its repository, at 512 tokens, where nprobe was varied.
"""

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, TableRow
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Measure, Table
from ragauge.results.pipelines import IndexName
from ragauge.results.runs import Runs
from ragauge.results.systems import Systems, grouped

LISTS = "nprobe_lists"
KINDS = ("retro", "retro_plus", "piperag")

READS = Reads(pipelines=("no_retrieval", *KINDS))


def table(runs: Runs) -> Table:
    logged = _published.logged(swept=True)
    lists = [Cell(c.keys, LISTS, Measure(), c.keys["nprobe"]) for c in logged if c.keys["nprobe"]]
    return grouped(runs, _group, logged + lists)


def draw(table: Table) -> Figure:
    several = table[table["measured"].notna()]["index"].map(str).nunique() > 1

    def line(row: TableRow) -> str:
        index = (
            f", index {row.keys['index']}" if several and row.keys["model"] != _lines.PAPER else ""
        )
        return _lines.with_interval(row) + index

    return _lines.SystemLines(
        LISTS,
        Axis("nprobe (lists scanned)", "base2"),
        "perplexity",
        _lines.PERPLEXITY,
        line,
        columns=("measured", "published"),
    )(table)


def _group(group: Systems) -> Cells:
    """Yield what was scored, or is to be, over the indexes on which nprobe was varied; over all if
    on none.
    """
    searched = [
        s
        for s in group
        if s.kind in KINDS and s.fixed_nprobe is not None and s.index and not s.index.filled
    ]
    scored = [s for s in searched if s.scored or s.requested("perplexity")]
    nprobes: dict[IndexName | None, set[int | None]] = {}
    for system in scored:
        nprobes.setdefault(system.index, set()).add(system.fixed_nprobe)
    varied = {index for index, values in nprobes.items() if len(values) > 1} or set(nprobes)
    swept = [s for s in scored if s.index in varied]
    shared = sequences.shared_keys(swept)
    for system in swept:
        yield from sequences.quality(group, system, shared)
        yield Cell(system.keys, LISTS, Measure(system.fixed_nprobe or 0, n=1))
