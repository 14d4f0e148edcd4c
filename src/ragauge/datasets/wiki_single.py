"""Our own single-hop questions over the Wikipedia sample: one gold passage among hard distractors."""

from dataclasses import dataclass

from ragauge.datasets._wiki import WikiDataset
from ragauge.datasets.base.dataset import SEARCH_RESULTS


@dataclass(frozen=True)
class WikiSingle(WikiDataset):
    """Questions in the manner of NQ-Open, at least one on every article of the sample, 20 passages
    each.
    """

    preamble = SEARCH_RESULTS
    metrics = ("best_subspan_em", "kept_gold_recall")
    questions = 164
    counts = "nq_open"
