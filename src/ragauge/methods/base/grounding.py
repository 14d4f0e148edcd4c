"""Parts of methods that look for evidence: documents read as one text, requests to it, answers from
the evidence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ragauge.engines.protocol import ANSWERING, Capability, Engine, Limits, Span, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base.method import (
    SPANS,
    Answer,
    Evidence,
    Method,
    generate,
    plain_row,
    read_plain,
)
from ragauge.methods.evidence import skip
from ragauge.methods.evidence.account import TrainedDefaults
from ragauge.methods.evidence.prefix import EvidenceContext
from ragauge.methods.evidence.request import REQUESTS, EvidenceRequest, Wording
from ragauge.methods.evidence.sentences import Sentence, Splitter, boundaries_of, split, tokenize
from ragauge.methods.prompts import Prompt, Source, cut_middle

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache

# tokens of the document that are read in one pass: the mask is (CHUNK, tokens before), never square
CHUNK = 1024
QUESTION_ROOM = 256  # tokens reserved for the request when a document is cut to the context
# and for evidence, at least, of a long context: variants then read the same of every document
EVIDENCE_ROOM = 576
NO_OFFSETS = "the model's tokenizer does not say which characters a token stands for"


@dataclass(frozen=True)
class GroundingText:
    """All documents of a prompt as one text, in sentences."""

    ids: list[int]
    sentences: list[Sentence]
    sources: tuple[Source, ...]
    truncated: int  # tokens left out of the middle
    splitter: Splitter

    @property
    def sentence_ids(self) -> list[list[int]]:
        """Token ids of each sentence, without the white space after it."""
        return [self.ids[s.first : s.end] for s in self.sentences]

    def evidence(self, ranges: Sequence[skip.Range]) -> tuple[Evidence, ...]:
        """Stretches of sentences in document order, neighbours joined, without white space at their
        ends.
        """
        pieces = []
        for first, last in skip.merge(ranges, self.sentences):
            source = self.sources[self.sentences[first].source]
            text = source.text[self.sentences[first].start : self.sentences[last].stop]
            start = self.sentences[first].start + len(text) - len(text.lstrip())
            pieces.append(Evidence.of(source, text.strip(), start))
        return tuple(pieces)


@dataclass
class Grounding:
    """A text, ready for any number of questions: in a cache, or as tokens for engines without
    caches.
    """

    text: GroundingText
    read: list[int]  # tokens of the opening and the text
    wording: EvidenceRequest
    cache: KVCache | None  # that holds them

    def written(self, engine: SpanEngine, prompt: Prompt, most: int) -> tuple[Evidence, ...]:
        """Read the request and write evidence of at most `most` tokens after it, greedily, without
        constraints.
        """
        limits = Limits(most, stop=())
        if self.cache is None:
            ids = engine.respond([*self.read, *self.request(engine, prompt)], limits).ids
        else:
            context = self.ask(engine, prompt)
            ids = generate(engine, context.cache, context.logits[None], context.position, limits)
        text = engine.tokenizer.decode(ids, skip_special_tokens=True)
        return tuple(written(text, prompt.sources, self.text.splitter))

    def answer(
        self, engine: Engine, prompt: Prompt, evidence: Sequence[Evidence], limits: Limits
    ) -> Answer:
        """Answer from evidence in this text; the record has the request for it."""
        request = self.wording.text(prompt.question)
        return answer_from(engine, prompt, evidence, self.text.truncated, limits, request)

    def request(self, engine: Engine, prompt: Prompt) -> list[int]:
        """Return token ids of the request for evidence, which follows the text."""
        return self.wording.after_document(
            engine.tokenizer, prompt.question, template_of(engine, prompt)
        )

    def ask(self, engine: SpanEngine, prompt: Prompt) -> EvidenceContext:
        """Read the request for evidence after the text, in place of the last one."""
        assert self.cache is not None
        self.cache.truncate(len(self.read))
        row = plain_row(self.request(engine, prompt), len(self.read))
        logits = engine.extend(self.cache, [row], stage="query", last_logits=True).last_logits
        assert logits is not None
        return EvidenceContext(
            self.cache, Span(0, self.cache.length), logits[0], float(self.cache.length)
        )


@dataclass(frozen=True)
class Finding(Method):
    """A method that looks for evidence by a decoder's own words, which may be those of another one
    than answers.
    """

    finds = True
    requires = ANSWERING | SPANS
    state = "set"  # all documents are read as one text

    # Table 2's words; "copy" is this project's, for models that were not trained. `adapted_to_training` gives
    # both options the values of a training.
    request: Wording = "paper"
    sentences: Splitter = "sentencex"  # what splits them; the released code takes "punkt"

    def adapted_to_training(self, trained: TrainedDefaults, where: str) -> Self:
        trained.check(self.stated_options, where)
        return replace(self, **trained.options)

    @abstractmethod
    def find(self, engine: SpanEngine, state: Any, prompt: Prompt) -> tuple[Evidence, ...]:
        """Return the evidence for the prompt's question, given what `prepare` returned."""

    def read_documents(
        self, engine: SpanEngine, prompt: Prompt, *, positions: int, slots: int, lower: str
    ) -> Grounding:
        """Read a prompt's documents as one text, once for all questions; beyond the context it
        loses its middle.

        An engine without caches reads nothing yet. A server lets nobody open its reply: the request
        has no cue there. So many `positions`, and `slots` of the cache (more where rows stand side
        by side), stay free for what follows the request; `lower` names the option that makes both
        less.

        Raises:
            UserError: the text has no sentence, or the context no room for it.
        """
        engine = finder_of(engine)
        wording = REQUESTS[self.request]
        wording = replace(wording, cue="") if Capability.SERVER in engine.capabilities else wording
        opening = wording.before_document(engine.tokenizer, template_of(engine, prompt))
        context = engine.max_context
        free = QUESTION_ROOM + max(positions, min(EVIDENCE_ROOM, context // 8))
        room = context - len(opening) - len(prompt.task) - free
        if room < 2:
            raise UserError(
                f"the model's context of {context} tokens has no room for a document; lower {lower}"
            )
        cut = cut_middle(prompt.sources, engine.tokenizer, room // 2, room - room // 2)
        text = sentences_of(engine, self.sentences, *cut)
        read = [*opening, *text.ids]
        if Capability.SPANS not in engine.capabilities:
            return Grounding(text, read, wording, None)
        cache = engine.new_cache(len(read) + len(prompt.task) + QUESTION_ROOM + slots)
        read_in_chunks(engine, cache, read)
        return Grounding(text, read, wording, cache)

    def unsupported(self, engine: SpanEngine) -> str | None:
        boundaries_of(self.sentences)  # raises where its package is missing
        return why_not(engine)


def finder_of(engine: SpanEngine) -> SpanEngine:
    """Return the decoder that finds the evidence which this one answers from."""
    return getattr(engine, "finder", None) or engine  # engines of the text level have none


def template_of(engine: Engine, prompt: Prompt) -> str:
    """Return the template of a request to this decoder: its own where it answers nothing, else the
    prompt's.
    """
    return getattr(engine, "template", None) or (prompt.text.template if prompt.text else "plain")


def why_not(engine: SpanEngine) -> str | None:
    """Explain why this decoder's own words cannot give evidence; None where they can."""
    if not engine.tokenizer.is_fast:
        return NO_OFFSETS
    # a server ends texts itself
    if Capability.SPANS not in engine.capabilities or finder_of(engine).shape.eos:
        return None
    return "the model has no end-of-text token, whose probability ends evidence"


def sentences_of(
    engine: Engine, splitter: Splitter, sources: Sequence[Source], truncated: int = 0
) -> GroundingText:
    """Join the sources to one text.

    Raises:
        UserError: it has no sentence.
    """
    ids, sentences = tokenize(sources, engine.tokenizer, splitter)
    if not sentences:
        raise UserError("the document has no sentence")
    return GroundingText(ids, sentences, tuple(sources), truncated, splitter)


def read_in_chunks(engine: SpanEngine, cache: KVCache, ids: Sequence[int]) -> None:
    """Read a long text in memory that grows linearly with it."""
    for start in range(0, len(ids), CHUNK):
        engine.extend(
            cache, [plain_row(ids[start : start + CHUNK], start)], stage="documents", offline=True
        )


def answer_from(
    engine: Engine,
    prompt: Prompt,
    evidence: Sequence[Evidence],
    truncated: int,
    limits: Limits,
    request: str = "",
) -> Answer:
    """Return the answer generated from these pieces of evidence in place of the documents, in the
    data set's own prompt. Without a piece it is generated from none, and the record's evidence is
    empty; `request` to the finder is recorded.
    """
    text = "\n".join(piece.text for piece in evidence) + prompt.document_end
    ids = read_plain(engine, prompt, [text], limits)
    documents = tuple(sorted({piece.document for piece in evidence if piece.document is not None}))
    return Answer(ids, documents, evidence=tuple(evidence), truncated=truncated, request=request)


def placed(text: str, sources: Sequence[Source]) -> Evidence:
    """Find generated text in the documents, first place first; no place where none has it."""
    for source in sources:
        if text in source.text:
            return Evidence.of(source, text, source.text.find(text))
    return Evidence(None, None, None, text)


def written(text: str, sources: Sequence[Source], splitter: Splitter) -> list[Evidence]:
    """Split a generated text, line by line, into sentences as pieces of evidence."""
    sentences = (
        line[start:stop].strip()
        for line in text.split("\n")
        for start, stop in split(line, splitter)
    )
    return [placed(sentence, sources) for sentence in sentences if sentence]
