"""PipeRAG, Figure 8: RETRO+, a RETRO with any interval, against PipeRAG.

What this shows: the seconds of a sequence against perplexity for both at every interval and nprobe,
the frontier of each, in the figure as changes from no retrieval's perplexity, and the largest
speedup of PipeRAG over a RETRO+ of no lower perplexity: the gain that remains when the baseline has
flexible intervals too.

Limits: the paper prints no numbers for its points.
"""

from ragauge.config.reads import Reads
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Table
from ragauge.results.runs import Runs
from ragauge.results.systems import Systems, grouped

SHOWN = ("no_retrieval", "retro_plus", "piperag")

READS = Reads(pipelines=SHOWN)


def table(runs: Runs) -> Table:
    return grouped(runs, _group)


draw = _lines.FRONTIERS


def _group(group: Systems) -> Cells:
    systems = [s for s in group if s.kind in SHOWN]
    shared = sequences.shared_keys(systems)
    for system in systems:
        yield from sequences.quality(group, system, shared)
        yield Cell(system.keys, "latency_s", sequences.latency(system))
    yield from _published.best_pairs(group, "retro_plus", shared)
