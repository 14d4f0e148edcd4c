"""Near-duplicates: texts that contain a piece of evaluation text, and texts that repeat another."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ragauge.text import UNSPACED, terms

GRAM_WORDS = 13
# Jaccard similarity (Borgeaud et al., 2022, RETRO, section 2.6)
THRESHOLD = 0.8
# of the table: at 0.8 it misses 1 in 20,000, and false candidates are dropped by comparison
BANDS = 25
ROWS = 5
PERMUTATIONS = 128  # the estimate's standard error at 0.8 is 0.035
_SCHEME = "affine32"
_UNSPACED = re.compile(f"[{UNSPACED}]")
PIECE_WORDS = 100  # of pieces of evaluation text
SHORT_WORDS = 50  # up to which a piece is compared by shorter n-grams
GRAM = 5  # words
SHORT_GRAM = 3  # words; of 12 words, with one changed, 7 of 10 n-grams stay
# In 2,349 Wikipedia articles 12 contain one of 33,395 other texts of 12 words, none one of 20.
MIN_GRAMS = 7


def near_duplicates(texts: Iterable[str], threshold: float) -> Callable[[str], bool]:
    """Return a test whether a text contains a piece of `texts`, word for word or nearly.

    A piece is `PIECE_WORDS` words, or a whole text with fewer. It is contained where so many of its
    distinct word n-grams stand within `PIECE_WORDS` words of the other text as two pieces of equal
    length share whose Jaccard similarity is `threshold`, but at least `MIN_GRAMS`. A piece that has
    fewer is not searched for: common phrases are as long.

    Args:
        texts: to search for; a text's words are those of BM25, so Chinese, Japanese and Thai are
            compared by pairs of characters.
        threshold: Jaccard similarity, from 0 to 1.
    """
    share = 2 * threshold / (1 + threshold)  # of n-grams that equally long pieces share
    pieces_with: dict[int, list[int]] = {}  # hash of an n-gram -> numbers of pieces
    needed: list[int] = []  # n-grams, by piece
    for text in dict.fromkeys(texts):
        words = terms(text)
        # a much shorter last piece is left out, unless it is the whole text
        for start in range(0, max(1, len(words) - SHORT_WORDS), PIECE_WORDS):
            piece = words[start : start + PIECE_WORDS]
            grams = set(_grams(piece, SHORT_GRAM if len(piece) <= SHORT_WORDS else GRAM))
            if len(grams) < MIN_GRAMS:
                continue
            for gram in grams:
                pieces_with.setdefault(gram, []).append(len(needed))
            needed.append(max(math.ceil(share * len(grams)), MIN_GRAMS))

    def is_near(text: str) -> bool:
        words = terms(text)
        last_seen = defaultdict[int, dict[int, int]](dict)  # piece -> n-gram -> its last position
        for size in (SHORT_GRAM, GRAM):
            for position, gram in enumerate(_grams(words, size)):
                for piece in pieces_with.get(gram, ()):
                    seen = last_seen[piece]
                    seen[gram] = position
                    if len(seen) >= needed[piece]:
                        first = position + size - PIECE_WORDS
                        if sum(at >= first for at in seen.values()) >= needed[piece]:
                            return True
        return False

    return is_near


def _grams(words: Sequence[str], size: int) -> Iterator[int]:
    """Return hashes of the runs of so many words."""
    return map(hash, zip(*(words[i:] for i in range(size)), strict=False))


def originals(texts: Sequence[str]) -> np.ndarray:
    """For each text, the first one that it repeats, else its own number: (text,) int64.

    A text repeats another where their word 13-grams have a Jaccard similarity of 0.8 or more,
    estimated by MinHash. It is compared with those that repeat none, so that no chain of small
    changes joins two texts that have little in common.
    """
    from datasketch import MinHash, MinHashLSH

    table = MinHashLSH(params=(BANDS, ROWS), num_perm=PERMUTATIONS)
    grams = map(_long_grams, texts)
    sketches = list(MinHash.generator(grams, num_perm=PERMUTATIONS, scheme=_SCHEME))
    first = np.arange(len(sketches))
    for number, sketch in enumerate(sketches):
        alike = (i for i in table.query(sketch) if sketches[i].jaccard(sketch) >= THRESHOLD)
        first[number] = min(alike, default=number)
        if first[number] == number:
            table.insert(number, sketch)
    return first


def _long_grams(text: str) -> list[bytes]:
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
