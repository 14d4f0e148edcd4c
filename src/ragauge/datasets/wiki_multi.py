"""Our own two-hop questions over the Wikipedia sample: two gold passages among hard distractors."""

from dataclasses import dataclass

from ragauge.datasets._wiki import WikiDataset
from ragauge.datasets.musique import Musique


@dataclass(frozen=True)
class WikiMulti(WikiDataset):
    """Questions in the manner of MuSiQue: what the first passage says is needed to find the second; 20 passages."""

    preamble = Musique.preamble
    metrics = Musique.metrics
    multi_hop = True
    questions = 45
    counts = "musique"
