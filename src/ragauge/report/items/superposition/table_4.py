"""Superposition Prompting, Table 4: the saliency of paths for pruning.

What this shows: the accuracy of superposition without pruning ("none"), with attention scores, with
the paper's Bayesian saliency and with its query term alone, at every top_k run, and the paired
differences Bayesian − other on the same questions with their p-values. "none" keeps every document
and is the same at each top_k. `gold_kept` is the share of questions whose gold document survives.
The paper's numbers are compared at top_k=1.

Attention is averaged over a document's tokens, as the paper says, or summed, as its released code
does; a note says "reduce sum" then.

Limits: the paper's "none" is not its unpruned row of Table 6, and it does not say how they differ.
"""

from ragauge.config.reads import ANY, COMPARED, Reads, defaults
from ragauge.report.items.superposition._tables import Ablation

PRUNING = ("attention", "query", "bayesian")

UNPRUNED = defaults("superposition", top_k=ANY, saliency="none")
PRUNED = defaults("superposition", top_k=COMPARED, saliency=PRUNING, reduce=ANY)
READS = Reads((PRUNED, UNPRUNED), datasets="single_hop")

ablation = Ablation("superposition_table_4", "saliency", ("none", *PRUNING), free=("reduce",))
table = ablation.table
draw = ablation.draw
