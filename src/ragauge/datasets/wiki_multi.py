"""Our own two-hop questions over the Wikipedia sample: two gold passages among hard distractors."""

from dataclasses import dataclass

from ragauge.datasets._wiki import WikiDataset


@dataclass(frozen=True)
class WikiMulti(WikiDataset):
    """Questions in the manner of MuSiQue: what the first passage says is needed to find the second;
    20 passages.
    """

    preamble = (
        "You are a question-answering assistant, who is careful to reference source material. "
        "Use the source(s) below to answer the user question."
    )
    metrics = ("f1", "em", "best_subspan_em", "kept_gold_recall")
    multi_hop = True
    questions = 45
    counts = "musique"
