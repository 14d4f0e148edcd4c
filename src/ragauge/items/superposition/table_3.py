"""Superposition Prompting, Table 3: equilibrium against left-aligned positions.

Shows the accuracy of superposition under both position assignments, at every top_k that was run with both or either,
and the paired difference equilibrium − left-aligned on the same questions with its p-value. The published difference is
that of the two published accuracies.

Does not show: other options than the paper's defaults, nor multi-hop questions. The paper's numbers stand beside
top_k=1.
"""

from __future__ import annotations

from ragauge.experiment.reads import COMPARED, Reads, defaults
from ragauge.items.superposition._ablation import Ablation

POSITIONS = ("left_aligned", "equilibrium")

READS = Reads(answers=(defaults("superposition", top_k=COMPARED, positions=POSITIONS),), datasets="single_hop")

ablation = Ablation("superposition_table_3", "positions", POSITIONS)
table, draw = ablation.table, ablation.draw
