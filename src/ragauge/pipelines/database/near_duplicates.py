"""Near-duplicates of evaluation text: documents whose word 13-grams have a Jaccard similarity of
0.8 or more with it, estimated by MinHash (Borgeaud et al., 2022, RETRO, section 2.6).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from ragauge.text import UNSPACED, terms

GRAM_WORDS = 13
THRESHOLD = 0.8  # Jaccard similarity
# of the table: at 0.8 it misses 1 in 20,000, and false candidates are dropped by comparison
BANDS = 25
ROWS = 5
PERMUTATIONS = 128  # the estimate's standard error at 0.8 is 0.035
_SCHEME = "affine32"
_UNSPACED = re.compile(f"[{UNSPACED}]")


def signatures(texts: Sequence[str]) -> np.ndarray:
    """MinHash signatures (text, permutation) uint32 of the texts' word 13-grams; a shorter text is
    one gram.
    """
    from datasketch import MinHash

    sketches = MinHash.generator(map(_grams, texts), num_perm=PERMUTATIONS, scheme=_SCHEME)
    return np.array([sketch.hashvalues for sketch in sketches], dtype=np.uint32).reshape(
        -1, PERMUTATIONS
    )


class EvaluationText:
    """The signatures of evaluation text, against which documents are compared; about 10 kB of
    memory a text.
    """

    def __init__(self, parts: Iterable[np.ndarray] = ()) -> None:
        """Take arrays of signatures, one per shard."""
        from datasketch import MinHashLSH

        self._table = MinHashLSH(params=(BANDS, ROWS), num_perm=PERMUTATIONS)
        self._rows: dict[int, np.ndarray] = {}
        for number, row in enumerate(chain.from_iterable(parts)):
            self.add(number, row)

    def add(self, number: int, row: np.ndarray) -> None:
        self._rows[number] = np.array(row)
        self._table.insert(number, _sketch(row))

    def like(self, row: np.ndarray) -> Iterator[int]:
        """Return the numbers of the texts that a signature (permutation,) is a near-duplicate of."""
        return (
            i for i in self._table.query(_sketch(row)) if np.mean(self._rows[i] == row) >= THRESHOLD
        )

    def near_duplicates(self, documents: np.ndarray) -> np.ndarray:
        """Return which documents (document, permutation) are near-duplicates: (document,) bool."""
        return np.array([any(True for _ in self.like(row)) for row in documents], dtype=bool)


def originals(texts: Sequence[str]) -> np.ndarray:
    """For each text, the first one that it is a near-duplicate of, else its own number: (text,)
    int64. A text is compared with those that are nobody's near-duplicates, so that no chain of
    small changes joins two texts that have little in common.
    """
    rows = signatures(texts)
    earlier = EvaluationText()
    first = np.arange(len(rows))
    for number, row in enumerate(rows):
        first[number] = min(earlier.like(row), default=number)
        if first[number] == number:
            earlier.add(number, row)
    return first


def _sketch(row: np.ndarray) -> object:
    from datasketch import MinHash

    return MinHash(hashvalues=np.array(row), scheme=_SCHEME)


def _grams(text: str) -> list[bytes]:
    """Return the word 13-grams of a text, in lower case; the whole text where it is shorter. Words
    are parted by blanks; in scripts without blanks they are those of BM25.
    """
    words = [
        word
        for run in text.lower().split()
        for word in (terms(run) if _UNSPACED.search(run) else [run])
    ]
    count = max(1, len(words) - GRAM_WORDS + 1)
    return [" ".join(words[i : i + GRAM_WORDS]).encode() for i in range(count)]
