"""Texts: Unicode forms, as they are read and as words are compared; words; columns of cells."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

# soft hyphen, zero-width space, word joiner, BOM
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_NO_BREAK = dict.fromkeys((0x00A0, 0x2007, 0x202F), " ")
# ff to st
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_READ = _INVISIBLE | _NO_BREAK | _LIGATURES
# Joiners, marks of direction and variation selectors shape what is shown; words are the same
# without them.
_SHAPING = dict.fromkeys(
    c for a, b in ((0x200C, 0x2010), (0x202A, 0x202F), (0xFE00, 0xFE10)) for c in range(a, b)
)
# Scripts without blanks between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# of letters: combining vowels and tones, as of Hindi and Thai
MARKS = "".join(c for c in map(chr, range(0x300, 0x1B00)) if unicodedata.category(c)[0] == "M")
_RUNS = UNSPACED + "\uac00-\ud7a3"  # Korean joins particles to words
_WORD = re.compile(rf"([{_RUNS}]+)|[^\W{_RUNS}]+(?:[{MARKS}]+[^\W{_RUNS}]*)*")


def clean(text: str) -> str:
    """Compose accents (NFC), spell out ligatures, make no-break spaces plain, remove what has no
    width in a word.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text.translate(_READ))


def fold(text: str) -> str:
    """Fold compatibility forms (NFKC), case, and characters without width, so that equal words are
    equal strings.
    """
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text.translate(_INVISIBLE | _SHAPING)).casefold()
    return unicodedata.normalize("NFKC", folded)  # which case folding can undo


def terms(text: str) -> list[str]:
    """Split a text into words: runs of letters and digits, folded; pairs of characters where no
    blanks part words.
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    return list(chain.from_iterable(map(_terms_of, _WORD.finditer(fold(text)))))


def _terms_of(word: re.Match[str]) -> Iterator[str]:
    """Return a word, or the bigrams of a run of characters without blanks."""
    run = word[1] or ""
    return map("".join, pairwise(run)) if len(run) > 2 else iter([word[0]])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as columns of text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)
