"""Ours: the control of RETRO-fit, retrieved neighbours against random ones.

Shows every way of reading neighbours that was scored: joint attention and gated cross-attention, untrained and
trained. Left, the paired difference of log-likelihood between retrieved and random neighbours from the same database,
read in the same way: retrieval helps only if the interval lies below zero. Right, the difference from the decoder
without neighbours, for retrieved and for random ones: a gain that both share is not due to retrieval. Rows with "own
article passed over" exclude neighbours from the article that the text was cut from.

Does not show: the paper's perplexities, which are of a model trained from scratch; the training curves, which are
stored with the trained weights.
"""

from __future__ import annotations

from ragauge.experiment.reads import Reads
from ragauge.rendering import Axis, Figure, dots, style
from ragauge.results import Cell, Runs, Table, frame, sequences
from ragauge.results.sequences import AGAINST_NONE, AGAINST_RANDOM
from ragauge.results.systems import KEYS, KINDS, groups, systems

UNTRAINED = "joint attention, untrained"
AXES = {
    AGAINST_RANDOM: Axis("retrieved − random (nats a token)", is_difference=True),
    AGAINST_NONE: Axis("− no retrieval (nats a token)", is_difference=True),
}

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, quantity)."""
    cells: list[Cell] = []
    for group in groups(systems(runs)):
        scored = [system for system in group if system.scored is not None]
        for system in scored:
            cells += sequences.quality(runs, scored, system, sequences.shared_keys(scored))
            cells += sequences.control(runs, scored, system)
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    """One row per system; retrieved and random neighbours of one form are adjacent."""
    shown = table[table["quantity"].isin(list(AXES))]
    names = [
        f"{style.method_label(method)}, {options or UNTRAINED}"
        for method, options in zip(shown["method"], shown["options"], strict=True)
    ]
    return dots.draw(shown, shown["method"], AXES, names)
