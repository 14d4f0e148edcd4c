"""Retrieval quality of one question from the ranks at which its gold passages were found; gains are binary.

Every measure takes `ranks`, from 1, of the gold passages that were found; `gold`, how many there are in the corpus, at
least one; and `k`, how many of the first passages count.
"""

import math
from collections.abc import Sequence


def recall(ranks: Sequence[int], gold: int, k: int) -> float:
    """The share of a question's gold passages that are among the first k."""
    return sum(rank <= k for rank in ranks) / gold


def success(ranks: Sequence[int], gold: int, k: int) -> float:
    """1.0 if a gold passage is among the first k, else 0.0: what open-domain question answering calls recall."""
    return float(any(rank <= k for rank in ranks))


def reciprocal_rank(ranks: Sequence[int], gold: int, k: int) -> float:
    """1 / rank of the first gold passage; 0.0 if there is none among the first k."""
    first = min(ranks, default=math.inf)
    return 1 / first if first <= k else 0.0


def ndcg(ranks: Sequence[int], gold: int, k: int) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin and Kekäläinen, 2002), discount log2(rank + 1)."""
    gained = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= k)
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(gold, k) + 1))
