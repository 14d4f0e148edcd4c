"""Our own single-hop questions over the Wikipedia sample, asked of the whole article."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.datasets._longbench import PASSAGES_PROMPT, LongBench
from ragauge.datasets._wiki import (
    QUESTIONS,
    SAMPLE,
    WikiQuestion,
    build_records,
    holds_answer,
    read_questions,
)
from ragauge.datasets.base import wikipedia
from ragauge.datasets.base.dataset import Document, Example, Stretch
from ragauge.datasets.base.wikipedia import Article
from ragauge.errors import UserError
from ragauge.io.jsonl import field, strings

SEPARATOR = "\n\n"  # between headings and texts of an article
_QUESTIONS = QUESTIONS / "wiki_single.jsonl"


@dataclass(frozen=True)
class WikiLong(LongBench):
    """The questions of `wiki_single`; the one document is the article, its headings lines of their
    own.
    """

    preamble = PASSAGES_PROMPT
    max_new_tokens = 32
    questions = 164
    counts = "longbench_qasper"
    assets = (SAMPLE,)

    def default_path(self) -> Path:
        return build_records("wiki_long", _QUESTIONS, Path(__file__), _records)

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        key, question, title, context = (
            field(record, name, str, place) for name in ("id", "question", "title", "context")
        )
        section: tuple[Stretch, ...] = ()
        if "section_start" in record:
            start, stop = (
                field(record, name, int, place) for name in ("section_start", "section_stop")
            )
            section = (Stretch(0, start, stop),)
        document = Document(title, context)
        answers = strings(record, "answers", place)
        return Example(key, question, (document,), answers, gold=(0,), gold_stretches=section)


def article_text(article: Article) -> str:
    """Return the sections below one another, each below its heading, blank lines between all of
    them.
    """
    return SEPARATOR.join(part for s in article.sections for part in (s.heading, s.text) if part)


def gold_section(article: Article, question: WikiQuestion) -> tuple[int, int]:
    """Find the gold section in the article's text, without its heading: (start, stop), in
    characters.

    Raises:
        UserError: not one section bears the question's heading and holds an answer and the words
            near it.
    """
    place = question.gold[0]
    at = 0
    fitting = []
    for section in article.sections:
        at += len(section.heading) + len(SEPARATOR) if section.heading else 0
        fits = section.heading == place.section and place.near.casefold() in section.text.casefold()
        if fits and holds_answer(section.text, question.answers):
            fitting.append((at, at + len(section.text)))
        at += len(section.text) + len(SEPARATOR) if section.text else 0
    if len(fitting) != 1:
        raise UserError(f"question {question.id}: {len(fitting)} sections fit {place}, not one")
    return fitting[0]


def _records(sample: Path) -> Iterator[dict[str, Any]]:
    articles = {article.title: article for article in wikipedia.read_articles(sample)}
    for question in read_questions(_QUESTIONS):
        title = question.gold[0].article
        if title not in articles:
            raise UserError(f"question {question.id}: no article {title!r} in {sample}")
        start, stop = gold_section(articles[title], question)
        yield {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "title": title,
            "section": question.gold[0].section,
            "section_start": start,
            "section_stop": stop,
            "context": article_text(articles[title]),
        }
