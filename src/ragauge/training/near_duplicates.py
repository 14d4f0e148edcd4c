"""Finds training text that contains a passage of the evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasketch import MinHash

PIECE_WORDS, SHINGLE_WORDS = 100, 5
PERMUTATIONS = 128


class NearDuplicates:
    """An index of texts by MinHash signatures of their pieces."""

    def __init__(self, texts: Iterable[str], threshold: float) -> None:
        """`threshold` is the Jaccard similarity of shingles at which two pieces count as the same."""
        from datasketch import MinHashLSH

        self.threshold = threshold
        pieces = (piece for text in dict.fromkeys(texts) for piece in signatures(text, stride=PIECE_WORDS))
        self.signatures = {str(number): piece for number, piece in enumerate(pieces)}
        self.index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
        for key, signature in self.signatures.items():
            self.index.insert(key, signature)

    def has(self, text: str) -> bool:
        """Whether any piece of a text is a near-duplicate of an indexed piece.

        Pieces begin every quarter of their length, so that one at any place of the text is found.
        """
        return any(
            signature.jaccard(self.signatures[key]) >= self.threshold
            for signature in signatures(text, stride=PIECE_WORDS // 4)
            for key in self.index.query(signature)
        )


def signatures(text: str, stride: int) -> list[MinHash]:
    """MinHash signatures of the text's pieces of `PIECE_WORDS` words, one every `stride` words.

    A much shorter last piece is left out, unless it is the whole text.
    """
    from datasketch import MinHash

    words = re.findall(r"\w+", text.lower())
    pieces = [words[at : at + PIECE_WORDS] for at in range(0, max(1, len(words) - PIECE_WORDS // 2), stride)]
    found: list[MinHash] = MinHash.bulk([_shingles(piece) for piece in pieces if piece], num_perm=PERMUTATIONS)
    return found


def _shingles(words: list[str]) -> list[bytes]:
    """The runs of `SHINGLE_WORDS` words, or all words where there are fewer."""
    last = max(1, len(words) - SHINGLE_WORDS + 1)
    return [" ".join(words[at : at + SHINGLE_WORDS]).encode() for at in range(last)]
