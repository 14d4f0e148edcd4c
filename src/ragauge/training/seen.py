"""The articles that training documents are cut from, and which of them an evaluation has seen."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge import assets
from ragauge.datasets import _wikipedia
from ragauge.datasets._base import read_jsonl
from ragauge.datasets.wiki_long import article_text
from ragauge.errors import UserError

if TYPE_CHECKING:
    from datasketch import MinHash

PIECE_WORDS, SHINGLE_WORDS = 100, 5
PERMUTATIONS = 128
FORMS = "a bzip2-compressed MediaWiki export, .jsonl(.gz) with texts, .txt(.gz)"
_DOC = re.compile(r"<doc [^>]*title=\"([^\"]*)\"[^>]*>\n(.*?)</doc>", re.DOTALL)  # WikiExtractor's
_TITLE = re.compile(r"^ = ([^=\n]+) = $", re.MULTILINE)  # WikiText's


@dataclass(frozen=True)
class Text:
    """An article."""

    key: str  # corpus and place in it
    title: str
    text: str


def read(corpus: str) -> Iterator[Text]:
    """The articles of a catalogued corpus or a local file.

    A .txt file holds WikiExtractor's `<doc>` elements, WikiText's ` = Title = ` headings, or one text.

    Raises:
        UserError: no such corpus, or a file of another kind or that cannot be read.
    """
    path = assets.resolve(corpus)
    for place, (title, text) in enumerate(_articles(path)):
        yield Text(f"{path.name.partition('.')[0]}/{place}", title, text)


def _articles(path: Path) -> Iterator[tuple[str, str]]:
    name = path.name.removesuffix(".gz")
    if name.endswith(".bz2"):
        return ((article.title, article_text(article)) for article in _wikipedia.read_articles(path))
    if name.endswith(".jsonl"):
        return _json_texts(path)
    if name.endswith(".txt"):
        return _plain_texts(path)
    raise UserError(f"{path}: a corpus is {FORMS}")


def _json_texts(path: Path) -> Iterator[tuple[str, str]]:
    for number, record in read_jsonl(path):
        if not isinstance(record.get("text"), str):
            raise UserError(f"{path}:{number}: no field 'text' that is text")
        yield str(record.get("title") or ""), record["text"]


def _plain_texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if documents := _DOC.findall(text):
        return ((title, body.strip().removeprefix(title).strip()) for title, body in documents)
    _, *titled = _TITLE.split(text)
    if titled:
        return ((title.strip(), body.strip()) for title, body in zip(titled[::2], titled[1::2], strict=True))
    return iter([("", text)])


# --- near-duplicates ---


class Seen:
    """Texts that were seen, as an index of MinHash signatures of their pieces."""

    def __init__(self, texts: Iterable[str], threshold: float) -> None:
        """`threshold` is the Jaccard similarity of two pieces' shingles from which they count as the same."""
        from datasketch import MinHashLSH

        self.threshold = threshold
        self.signatures: dict[str, MinHash] = {}
        self.index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
        for text in dict.fromkeys(texts):
            for signature in signatures(text, stride=PIECE_WORDS):
                self._add(str(len(self.signatures)), signature)

    def _add(self, key: str, signature: MinHash) -> None:
        self.signatures[key] = signature
        self.index.insert(key, signature)

    def has(self, text: str) -> bool:
        """Whether a piece of the text is nearly a piece of one that was seen.

        Pieces are taken every quarter of their length, so that one that stands anywhere in the text is met.
        """
        return any(
            signature.jaccard(self.signatures[key]) >= self.threshold
            for signature in signatures(text, stride=PIECE_WORDS // 4)
            for key in self.index.query(signature)
        )


def signatures(text: str, stride: int) -> list[MinHash]:
    """MinHash signatures of the text's pieces of `PIECE_WORDS` words, one every `stride` words.

    A last piece that is much shorter is left out, unless it is all of the text.
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
