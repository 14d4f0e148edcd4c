"""Superposition Prompting, Table 3: equilibrium against left-aligned positions.

What this shows: the accuracy of superposition under both position assignments at every top_k run,
and the paired difference equilibrium − left-aligned on the same questions with its p-value. The
published difference is that of the two published accuracies, compared at top_k=1.

Limits: the paper's defaults for all other options, and single-hop questions.
"""

from ragauge.config.reads import COMPARED, Reads, defaults
from ragauge.report.items.superposition._tables import Ablation

POSITIONS = ("left_aligned", "equilibrium")

READS = Reads(
    answers=(defaults("superposition", top_k=COMPARED, positions=POSITIONS),), datasets="single_hop"
)

ablation = Ablation("superposition_table_3", "positions", POSITIONS)
table = ablation.table
draw = ablation.draw
