"""Gold passages: those that answer a question, as far as its answers and its gold document say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ragauge.errors import UserError
from ragauge.metrics import normalise
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion


def gold_passages(
    questions: Iterable[StudyQuestion], passages: Sequence[Passage], originals: Mapping[str, str]
) -> Iterator[list[int]]:
    """Find the passages that hold an answer of each question, in its gold document where that is known.

    Where the gold document holds no answer word for word, all of its passages are gold.

    Args:
        originals: title of every document -> of the one that it nearly repeats, or its own: if one is gold, all are.

    Raises:
        UserError: a gold document is not in the corpus.
    """
    texts = [normalise(passage.text) for passage in passages]
    by_document: dict[str, list[int]] = {}
    for place, passage in enumerate(passages):
        by_document.setdefault(originals[passage.document], []).append(place)
    for question in questions:
        if question.gold is not None and question.gold not in originals:
            raise UserError(f"question {question.question!r}: gold {question.gold!r} is not a document of the corpus")
        within = by_document.get(originals[question.gold], []) if question.gold is not None else []
        answers = [answer for answer in map(normalise, question.answers) if answer]
        places = within or range(len(texts))  # all, too, where every passage of the gold document was dropped
        yield [i for i in places if any(answer in texts[i] for answer in answers)] or within
