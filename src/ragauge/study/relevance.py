"""Which passages are gold: those that answer a question, as far as its answers and its gold document say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from ragauge.errors import UserError
from ragauge.metrics import normalise
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion


class Gold:
    """Finds the gold passages of questions among all passages, whose text it normalises once."""

    def __init__(self, passages: Sequence[Passage], titles: Mapping[str, str]) -> None:
        """
        Args:
            titles: of every document, each with that of the document that it is a near-duplicate of, or its own: where
                one of them is gold, all are.
        """
        self._passages, self._titles = passages, titles

    def of(self, question: StudyQuestion) -> list[int]:
        """The passages that hold an answer, in the gold document where it is known; all passages of that document
        where it holds no answer word for word.

        Raises:
            UserError: the gold document is not in the corpus.
        """
        if question.gold is not None and question.gold not in self._titles:
            raise UserError(f"question {question.question!r}: gold {question.gold!r} is not a document of the corpus")
        within = self._by_document.get(self._titles[question.gold]) if question.gold is not None else None
        if within is None:  # unknown, or all of its passages repeat those of others and were dropped
            return self._holding(question, range(len(self._passages)))
        return self._holding(question, within) or list(within)

    def _holding(self, question: StudyQuestion, places: Sequence[int]) -> list[int]:
        answers = [answer for answer in map(normalise, question.answers) if answer]
        return [i for i in places if any(answer in self._texts[i] for answer in answers)]

    @cached_property
    def _texts(self) -> list[str]:
        return [normalise(passage.text) for passage in self._passages]

    @cached_property
    def _by_document(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, passage in enumerate(self._passages):
            found.setdefault(self._titles[passage.document], []).append(place)
        return found
