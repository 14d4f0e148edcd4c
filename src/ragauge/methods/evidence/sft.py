"""Training data of CFIC: spans of documents, questions written for them, and both as token ids.

The paper takes random spans of long articles and has a language model write a question that each
span answers.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragauge.methods.evidence.chat import Chat
from ragauge.methods.evidence.request import EvidenceRequest
from ragauge.methods.evidence.sentences import Splitter, tokenize
from ragauge.methods.prompts import Source

FEWEST_SPAN_TOKENS = 12
MOST_SPAN_TOKENS = 128
QUESTION_TOKENS = 40  # of a written question at most
QUESTION_WORDS = (4, 30)  # fewest and most of a question
MOST_COPIED = 0.6  # part of a question's runs of three words that may stand in the span
REQUEST = "{text}\n\nWrite a question about {title} that the text above answers."
CUE = "Question:"  # opens a local model's reply, which otherwise is often about the task
ALONE = " Reply with the question alone."  # for a model whose reply cannot be opened

_DEICTIC = re.compile(
    r"\b(text|passage|paragraph|sentences?|article|excerpt|author|above|following)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class SpanQuestion:
    """A stretch of a document and a question that it answers."""

    start: int  # first character in the document's text
    stop: int  # after the last character
    question: str = ""


@dataclass(frozen=True)
class TrainingDocument:
    """An article, or a stretch of one with the spans that were drawn in it."""

    key: str  # corpus and place in it; of a stretch also its first character
    title: str
    text: str
    spans: tuple[SpanQuestion, ...] = ()

    @property
    def corpus(self) -> str:
        """The name of the corpus that it comes from."""
        return self.key.partition("/")[0]

    def span_text(self, span: SpanQuestion) -> str:
        """Return a span's text, without white space at its ends."""
        return self.text[span.start : span.stop].strip()


@dataclass(frozen=True)
class Encoded:
    """A document and its requests as token ids, as `methods.cfic` reads them."""

    document: list[int]  # with all that precedes it
    # (the request, the span and end-of-text) of each span
    requests: tuple[tuple[list[int], list[int]], ...]


def cut(
    article: TrainingDocument, tokenizer: Any, longest: int, splitter: Splitter
) -> Iterator[TrainingDocument]:
    """Yield the article's stretches of whole sentences of up to `longest` tokens; a last one below
    half of it is left out.
    """
    text = article.text
    _, sentences = tokenize([Source(0, "", text)], tokenizer, splitter)
    while sentences:
        room = sentences[0].first + longest
        count = max(1, sum(s.last <= room for s in sentences))
        taken = sentences[:count]
        sentences = sentences[count:]
        first = taken[0]
        last = taken[-1]
        if first.start == 0 or last.last - first.first >= longest // 2:
            yield TrainingDocument(
                f"{article.key}#{first.start}", article.title, text[first.start : last.stop]
            )


def draw_spans(
    document: TrainingDocument,
    tokenizer: Any,
    count: int,
    most_sentences: int,
    seed: int,
    splitter: Splitter,
) -> TrainingDocument:
    """Return the document with up to `count` random spans of one to `most_sentences` sentences, one
    in each part of it. A span begins and ends with a whole sentence of prose, headings and list
    items are passed over, and has `FEWEST_SPAN_TOKENS` to `MOST_SPAN_TOKENS` tokens. Fixed by the
    seed and the document's key.
    """
    drawn = random.Random(f"{seed}/{document.key}")
    _, sentences = tokenize([Source(0, document.title, document.text)], tokenizer, splitter)
    spans = []
    for part in range(count):
        places = sentences[part * len(sentences) // count : (part + 1) * len(sentences) // count]
        fitting = [
            SpanQuestion(first.start, last.stop)
            for i, first in enumerate(places)
            for last in places[i : i + drawn.randint(1, most_sentences)]
            if FEWEST_SPAN_TOKENS <= last.end - first.first <= MOST_SPAN_TOKENS
            and all(is_prose(document.text[s.start : s.stop]) for s in (first, last))
        ]
        spans += [drawn.choice(fitting)] if fitting else []
    return replace(document, spans=tuple(spans))


def is_prose(sentence: str) -> bool:
    """Return whether a sentence ends as one of prose does; headings and list items do not."""
    return sentence.rstrip(" \n\"')”").endswith((".", "!", "?"))


def write_questions(chat: Chat, spans: Sequence[tuple[str, str]]) -> list[str | None]:
    """Have a model write a question for each (title, span); None where it gave no reply."""
    requests = [REQUEST.format(title=title, text=text) for title, text in spans]
    return chat.replies(requests, QUESTION_TOKENS, CUE, ALONE)


def first_question(reply: str) -> str:
    """Return the question in a writer's reply: its first line, up to the first question mark."""
    line = reply.strip().removeprefix(CUE).strip().split("\n")[0].strip(" \"'*")
    return line[: line.index("?") + 1] if "?" in line else line


def problem(question: str, span: str, title: str) -> str | None:
    """Explain why a question cannot be used for a span; None if it can."""
    words = _words(question)
    spanned = _words(span)
    if not words:
        return "empty"
    if not question.endswith("?"):
        return "no question mark"
    if not QUESTION_WORDS[0] <= len(words) <= QUESTION_WORDS[1]:
        return "too short or too long"
    if _DEICTIC.search(question):
        return "speaks of the text"
    runs, span_runs = (list(zip(w, w[1:], w[2:], strict=False)) for w in (words, spanned))
    if sum(run in span_runs for run in runs) / max(1, len(runs)) > MOST_COPIED:
        return "copies the span"
    if not {w for w in words if len(w) > 3} & set(spanned) - set(_words(title)):
        return "asks for nothing that is in the span alone"
    return None


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def encode(
    document: TrainingDocument,
    tokenizer: Any,
    template: str,
    wording: EvidenceRequest,
    eos: int,
    longest: int,
    splitter: Splitter,
) -> Encoded:
    """Return the document as the method reads it, with each span's tokens and `eos` as the response
    to its question. A request that makes document, request and response longer than `longest`
    tokens is left out.
    """
    read, sentences = tokenize([Source(0, document.title, document.text)], tokenizer, splitter)
    ids = [*wording.before_document(tokenizer, template), *read]
    requests = []
    for span in document.spans:
        first = next(s for s in sentences if span.start < s.stop)
        last = next(s for s in sentences if span.stop <= s.stop)
        request = wording.after_document(tokenizer, span.question, template)
        response = [*read[first.first : last.end], eos]
        if len(ids) + len(request) + len(response) <= longest:
            requests.append((request, response))
    return Encoded(ids, tuple(requests))
