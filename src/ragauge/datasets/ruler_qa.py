"""RULER's question answering over documents of equal length: our single-hop questions among
distractors.

No rule of length or place finds the gold documents; a gold passage has words of its question, as in
any question of this kind, so that a ranker of words finds many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

from ragauge.datasets._ruler import RulerDataset
from ragauge.datasets._wiki import SAMPLE, default_records, holds_answer
from ragauge.datasets.base.dataset import Document, Example, example_of, reordered
from ragauge.errors import UserError

TOKENS_PER_WORD = 1.5  # of the Wikipedia sample, in SmolLM2's and Qwen's vocabularies


@dataclass(frozen=True)
class RulerQA(RulerDataset):
    """Questions of `wiki_single`, each passage inside a document of other text.

    First come the question's own distractors, which are hard, then random passages. Documents have
    the same number of words; questions whose gold passage has more are left out.
    """

    preamble = (
        "Answer the question based on the given documents. Only give me the answer and do not output "
        "any other words."
    )
    metrics = ("string_match_part", "kept_gold_recall")
    questions = 164
    max_new_tokens = 32
    assets = (SAMPLE,)

    def default_path(self) -> Path:
        return default_records("wiki_single")

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        return example_of(record, place)

    def examples(self, path: Path) -> Iterator[tuple[str, Example]]:
        source = [example for _, example in super().examples(path)]
        size = int(self.tokens / self.documents / TOKENS_PER_WORD)  # words of a document
        fitting = [e for e in source if all(len(_words(e.documents[g])) <= size for g in e.gold)]
        if not fitting:
            raise UserError(
                f"dataset ruler_qa.documents: no gold passage fits the {size} words that each has of "
                f"{self.tokens} tokens; got {self.documents}"
            )
        passages = list(dict.fromkeys(document for one in source for document in one.documents))
        for number, example in enumerate(fitting):
            order = sorted(range(len(example.documents)), key=lambda i: i not in example.gold)
            example = reordered(example, order)
            yield str(path), self.arranged(number, example, self._texts(example, passages, size))

    def _texts(self, example: Example, passages: Sequence[Document], size: int) -> list[str]:
        """Write documents of `size` words: each a passage at a random place in the text of others,
        which hold no answer and stand once.
        """
        draw = Random(f"{self.seed} {example.key}")
        own = example.documents
        drawn = draw.sample(passages, len(passages))
        free = (d for d in drawn if d not in own and not holds_answer(d.text, example.answers))
        chosen = [_words(d)[:size] for d in islice(chain(own, free), self.documents)]
        others = chain.from_iterable(map(_words, free))
        texts = []
        for words in chosen:
            around = [*islice(others, size - len(words))]
            before = draw.randint(0, len(around))
            texts.append([*around[:before], *words, *around[before:]])
        if sum(map(len, texts)) < size * self.documents:
            raise UserError(
                f"dataset ruler_qa.tokens: the file has too few passages without an answer of "
                f"{example.key!r}; got {self.tokens}"
            )
        return list(map(" ".join, texts))


def _words(document: Document) -> list[str]:
    return f"{document.title}: {document.text}".split()
