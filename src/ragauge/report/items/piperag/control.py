"""The control of RETRO-fit: retrieved against random neighbours.

What this shows: every attention mode that was scored, untrained and trained. Left, the paired
difference of log-likelihood between retrieved and random neighbours from the same database, read in
the same way: retrieval helps only if the interval lies below zero. Right, the difference from the
decoder without neighbours, for retrieved and for random ones: a gain that both share is not due to
retrieval. Rows with "own article passed over" exclude neighbours from the article of the text.

Limits: the paper's perplexities are of a model trained from scratch. Training curves are stored
with the weights.
"""

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Dots, style
from ragauge.report.items.piperag._lines import database
from ragauge.results import sequences
from ragauge.results.cells import Cells, Table
from ragauge.results.runs import Runs
from ragauge.results.sequences import AGAINST_NONE, AGAINST_RANDOM
from ragauge.results.systems import KINDS, Systems, grouped

UNTRAINED = "joint attention, untrained"
AXES = {
    AGAINST_RANDOM: Axis("retrieved − random (nats a token)", is_difference=True),
    AGAINST_NONE: Axis("− no retrieval (nats a token)", is_difference=True),
}

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    return grouped(runs, _group)


def _group(group: Systems) -> Cells:
    scored = [system for system in group if system.scored]
    shared = sequences.shared_keys(scored)
    for system in scored:
        yield from sequences.quality(scored, system, shared)
        yield from sequences.control(scored, system)


# One row per system; retrieved and random neighbours of one form are adjacent.
draw = Dots(
    AXES,
    name=lambda row: (
        f"{style.method_label(row['method'])}, {row['options'] or UNTRAINED}{database(row, ', ')}"
    ),
)
