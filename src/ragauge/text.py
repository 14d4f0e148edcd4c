"""Texts: Unicode forms, as they are read and as words are compared; words; columns of cells.

There is one rule of words, `words`: answers, groundedness and the BM25 of a study compare by it
(`search_terms` makes pairs of its characters). `terms`, runs of letters and digits alone, is for
what papers' protocols fix: BM25 among the documents of one question (Superposition Prompting), the
n-grams of near-duplicates (RETRO).
"""

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
_RUN = re.compile(rf"[{_RUNS}]")
# Other forms of marks that carry a value
_FORMS = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2212\u2044\u2215\u00ba\u02da\u066a\u066b\u066c\u2018\u2019\u02bc",
    "------//\u00b0\u00b0%.,'''",
)
# What is written in place of what before words are found, in this order
_REWRITTEN = (
    (r"(?<=\d)[\u00a0\u2007\u2009\u202f](?=\d{3}(?!\d))", ""),  # thousands: 1 200
    (r"(?<=\d)(?<![\u00b2\u00b3\u00b9])(?=[\u00b2\u00b3\u00b9\u2070-\u207b])", "^"),  # raised: 10^3
    (r"(?<=\d)(?=[\u00bc-\u00be\u2150-\u215e])", " "),  # 1 1/2, not 11/2
    (r"\b(?:(?:an?|An|AN)(?=\s+\w)|[Tt][Hh][Ee](?=[\s-]+\w))", " "),  # articles
    # a capital A within a sentence is a name, as in vitamin A
    (r"(?:^|[.!?:;\n\"(])\s{0,4}A(?=[ \t]+\w)", " "),
    (r"(?<=\w)'[sS]\b", ""),
    (r"(?<![^\W_])([^\W\d_]{1,2})\.(?=[^\W\d_](?![^\W_]))", r"\1"),  # U.S., Ph.D.
    (r"(?<![\w.])\.(?=\d)", "0."),
)
_MARKED = re.compile(r"(?<![\w.])\d+(?:[.,']\d+)+")  # numbers
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # 1,200.5
# 12,5 and 1.200,5, as in most of Europe; 1.200 stays a decimal number
_COMMA = re.compile(r"\d+,\d+|[1-9]\d{0,2}(\.\d{3})+,\d+|[1-9]\d{0,2}(\.\d{3}){2,}")
# of Chinese: 0 to 9, tens to trillions, two
_NUMERALS = (
    "\u3007\u96f6\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d"
    "\u5341\u767e\u5343\u4e07\u842c\u4ebf\u5104\u5146\u4e24\u5169"
)
_LETTERS = rf"[^\W_{_RUNS}]+(?:[{MARKS}]+[^\W_{_RUNS}]*)*"
_VALUE = re.compile(
    rf"[{_NUMERALS}]+(?:\u70b9[{_NUMERALS}]+)*|[{_RUNS}]"
    # numbers with a sign, decimals, parts (1/2, 10:30) and powers
    r"|(?:(?<!\w)-)?\d+(?:[.,:/]\d+)*(?:[e^][-+]?\d+)?(?:\+(?!\w)|\+\+)?"
    # words with digits, such as v2.4, units such as km/h, and C++ or C#
    rf"|{_LETTERS}(?:[.,](?<=\d.)(?=\d){_LETTERS})*"
    rf"(?:/(?:(?<=\b\w/)|(?<=\b\w\w/)|(?=\w\w?\b)){_LETTERS})*(?:\+\+|#|\+(?!\w))*"
    # marks by themselves
    r"|(?:(?<!\w)-(?=[$\u20ac\u00a3\u00a5\u20b9]))?[%\u2030\u00b0$\u20ac\u00a3\u00a5\u20b9<>\u2264\u2265\u00b1]"
)


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


def words(text: str) -> list[str]:
    """Split a text into the words that answers are compared by.

    Words are whole and folded. Marks that carry a value belong to them or are words of their own:
    decimal point, sign, `/`, `+`, `#`, degree, per cent, currencies, comparisons. The forms of one
    number are one: "1,200" and "1200", "12,5" and "12.5", "\u22125" and "-5". English articles are
    left out. Scripts that have no blanks between words, and Korean, give single characters.
    """
    text = re.sub(r"[^\x00-\x7f\D]", lambda digit: str(int(digit[0])), text.translate(_FORMS))
    for written, rewritten in _REWRITTEN:
        text = re.sub(written, rewritten, text)
    return _VALUE.findall(_MARKED.sub(_number, fold(text).translate(_FORMS)))


def _number(written: re.Match[str]) -> str:
    """Write a number without marks between thousands and with a decimal point, versions as they are."""
    number = written[0].replace("'", "").removesuffix(".00")
    if _THOUSANDS.fullmatch(number):
        return number.replace(",", "")
    return number.replace(".", "").replace(",", ".") if _COMMA.fullmatch(number) else number


def search_terms(text: str) -> list[str]:
    """Split a text into the words that a search matches: `words`, the parts of those with a slash,
    and pairs of characters, as in `terms`, where no blanks part words.
    """
    whole = [word for word in words(text) if not _RUN.match(word)]
    parts = [part for word in whole if "/" in word for part in word.split("/")]
    return whole + parts + list(filter(_RUN.match, terms(text)))


def _terms_of(word: re.Match[str]) -> Iterator[str]:
    """Return a word, or the bigrams of a run of characters without blanks."""
    run = word[1] or ""
    return map("".join, pairwise(run)) if len(run) > 2 else iter([word[0]])


def significant(value: float | None) -> str:
    """A number with three significant digits; empty where there is none."""
    return "" if value is None else f"{value:.3g}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as columns of text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)
