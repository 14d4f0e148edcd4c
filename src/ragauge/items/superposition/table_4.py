"""Superposition Prompting, Table 4: how paths are scored for pruning.

Shows the accuracy of superposition without pruning ("none"), with attention scores, with the Bayesian saliency of the
paper and with its query term alone (ours), at every top_k that was run, and the paired differences Bayesian − other on
the same questions with their p-values. "none" keeps every document, so that it stands the same beside each top_k.

Does not show: whether the gold document was kept (that is the metric kept_gold_recall of the records). The paper's
numbers stand beside top_k=1; its "none" is not its unpruned row of Table 6, and it does not say how they differ.
"""

from __future__ import annotations

from ragauge.experiment.reads import ANY, COMPARED, Reads, defaults
from ragauge.items.superposition._ablation import Ablation

PRUNING = ("attention", "query", "bayesian")

READS = Reads(
    answers=(
        defaults("superposition", top_k=COMPARED, saliency=PRUNING),
        defaults("superposition", top_k=ANY, saliency="none"),
    ),
    datasets="single_hop",
)

ablation = Ablation("superposition_table_4", "saliency", ("none", *PRUNING))
table, draw = ablation.table, ablation.draw
