"""Superposition Prompting, Table 4: how paths are scored for pruning.

Shows the accuracy of superposition without pruning ("none"), with attention scores, with the Bayesian saliency of the
paper and with its query term alone (ours), at every top_k that was run, and the paired differences Bayesian − other on
the same questions with their p-values. "none" keeps every document, so that it stands the same beside each top_k.

Does not show: whether the gold document was kept (that is the metric kept_gold_recall of the records). The paper's
numbers stand beside top_k=1; its "none" is not its unpruned row of Table 6, and it does not say how they differ.
"""

from __future__ import annotations

from ragauge.experiment.reads import ANY, COMPARED, Reads, defaults
from ragauge.items.superposition import _ablation
from ragauge.rendering import Figure
from ragauge.results import Runs, Table

SALIENCIES = ("none", "attention", "query", "bayesian")

READS = Reads(
    answers=(
        defaults("superposition", top_k=COMPARED, saliency=("attention", "query", "bayesian")),
        defaults("superposition", top_k=ANY, saliency="none"),
    ),
    datasets="single_hop",
)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, saliency, top_k) and for each paired difference."""
    return _ablation.table(runs, "superposition_table_4", "saliency", SALIENCIES)


def draw(table: Table) -> Figure:
    """Accuracy under each saliency, and the paired differences."""
    return _ablation.draw(table, "saliency")
