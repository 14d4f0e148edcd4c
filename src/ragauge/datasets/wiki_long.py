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
    read_questions,
)
from ragauge.datasets.base import wikipedia
from ragauge.datasets.base.dataset import Document, Example, Stretch
from ragauge.datasets.base.wikipedia import Article
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
    """
    place = question.gold[0]
    [text] = [
        section.text
        for section in article.sections
        if section.heading == place.section and place.fits(section.text, question.answers)
    ]
    start = article_text(article).index(text)
    return start, start + len(text)


def _records(sample: Path) -> Iterator[dict[str, Any]]:
    articles = {article.title: article for article in wikipedia.read_articles(sample)}
    for question in read_questions(_QUESTIONS):
        place = question.gold[0]
        article = articles[place.article]
        start, stop = gold_section(article, question)
        yield {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "title": article.title,
            "section": place.section,
            "section_start": start,
            "section_stop": stop,
            "context": article_text(article),
        }
