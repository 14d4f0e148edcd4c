"""PipeRAG, Figure 6: latency against perplexity, with the control.

What this shows: every RETRO and PipeRAG that was scored and timed, and the frontier of each; the
figure has perplexities as changes from no retrieval's. The table has all schedules, and for each
index the two claims of the text, over all pairs of a RETRO and a PipeRAG without further options:
the largest speedup at equal or lower perplexity, and the largest gain of perplexity at equal or
lower latency; each is the best of its pairs on these sequences. `retrieved_minus_random_nats` is
the control: retrieved neighbours must beat random ones of the same database on the same sequences
by an interval below zero, else a gain over no retrieval is not due to retrieval.

Limits: the paper prints no numbers for its points; Table 1 has three of them per data set.
"""

from dataclasses import replace

from ragauge.config.reads import Reads
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Table
from ragauge.results.runs import Runs
from ragauge.results.systems import KINDS, Systems, grouped

DRAWN = ("no_retrieval", "retro", "piperag")

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    return grouped(runs, _group, _published.table_1() + _published.claims())


# Table 1's points shaded
draw = replace(_lines.FRONTIERS, columns=("measured", "published"), kinds=DRAWN)


def _group(group: Systems) -> Cells:
    shared = sequences.shared_keys(group)
    for system in group:
        yield from sequences.quality(group, system, shared)
        if system.kind != "random":
            yield Cell(system.keys, "latency_s", sequences.latency(system))
        yield from sequences.control(group, system)
    for quantity in (_published.SPEEDUP, _published.GAIN):
        yield from _published.best_pairs(group, "retro", shared, quantity)
