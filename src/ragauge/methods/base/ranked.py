"""Retrieval baselines: a ranker scores the documents, the best few go into a plain prompt."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ragauge.cost.cycles import CONTRIEVER_MACS
from ragauge.engines.protocol import Capabilities, Capability, Engine, Limits, SpanEngine
from ragauge.methods.base.method import SPANS, Answer, Method, State, read_plain, traced
from ragauge.methods.base.reading import Reading, read_preamble
from ragauge.methods.base.states import Around
from ragauge.methods.prompts import PREAMBLE, Name, Prompt, unit_segment
from ragauge.methods.prompts.templates import query_text
from ragauge.methods.rankers import bm25
from ragauge.options import PositiveInt

# capacity of the cache of documents that were ranked first; it grows
INITIAL_DOCUMENT_TOKENS = 1024


@dataclass(frozen=True)
class Ranked(Method):
    """Keep the `top_k` documents that the ranker scores highest, in descending order, in one plain
    prompt.

    With `path_caching` (the paper's accounting of its baselines) the best document was read after
    the preamble before the query was known, and only the others are read after it. Which document
    that will be is known with the query alone, so all of them would have been read; here the one
    needed is read when it is first used, and its call is marked as offline.
    """

    top_k: PositiveInt = 1
    path_caching: bool = True
    # what is ranked by; prompt: "Question: ...", as released
    query: Literal["question", "prompt"] = "question"
    state = "documents"
    library: ClassVar[str | None] = None  # of the ranker: imported before anything is timed

    def adapted_to(self, capabilities: Capabilities) -> Self:
        """Return a copy without path caching for an engine that cannot cache."""
        return self if Capability.SPANS in capabilities else replace(self, path_caching=False)

    def usable_state(self) -> State:
        return self.state if self.path_caching else "nothing"

    def required(self) -> Capabilities:
        return SPANS if self.path_caching else frozenset()

    def query_of(self, prompt: Prompt) -> str:
        """Return the text that documents are ranked for."""
        return prompt.question if self.query == "question" else query_text(prompt.question)

    def read_before(self) -> Method:
        return _AllRead(self)

    @abstractmethod
    def rank(self, engine: SpanEngine, state: Any, prompt: Prompt) -> np.ndarray:
        """Score the documents for the question: (document,), higher is better."""

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> RankedState:
        if self.library:
            importlib.import_module(self.library)
        return RankedState(
            read_preamble(engine, prompt, INITIAL_DOCUMENT_TOKENS) if self.path_caching else None
        )

    def answer(
        self, engine: SpanEngine, state: RankedState, prompt: Prompt, limits: Limits
    ) -> Answer:
        with traced(engine, "rank", macs=self.query_macs(prompt)):
            scores = self.rank(engine, state, prompt)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.top_k]
        if state.reading is None:
            ids = read_plain(engine, prompt, (prompt.documents[i] for i in order), limits)
        else:
            ids = _answer_after(state.reading, order, prompt, limits)
        return Answer(ids, tuple(order), tuple(map(float, scores)))

    def query_macs(self, prompt: Prompt) -> int:
        """Count the multiply-accumulates of scoring one query: none where the ranker counts words."""
        return 0


class _AllRead(Around):
    """A ranker that has read each document after the preamble, not the best one alone."""

    state = "documents"

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> RankedState:
        state = self.method.prepare(engine, prompt)
        for number in range(len(prompt.documents)):
            _read(state.reading, number, prompt)
        return state


@dataclass
class RankedState:
    """The cached preamble, every document that was once ranked first, and a ranker's own state."""

    reading: Reading | None
    vectors: np.ndarray | None = None  # (document, dim), of dense rankers


class ProjectedContriever(Ranked):
    """Dense retrieval without an encoder's weights, for costs that are computed from shapes.

    The cost does not depend on which documents are chosen, and encoding costs what the paper
    states.
    """

    def rank(self, engine: SpanEngine, state: Any, prompt: Prompt) -> np.ndarray:
        return -np.arange(len(prompt.documents))

    def query_macs(self, prompt: Prompt) -> int:
        return CONTRIEVER_MACS


def embed(
    engine: Engine, encoder: str, texts: Sequence[str], *, query: bool = False, offline: bool
) -> np.ndarray:
    """Embed texts by an encoder, an asset's name or source, as a traced call: (text, dim)."""
    from ragauge.methods.rankers.dense import load_encoder

    model = load_encoder(encoder)
    with traced(engine, "rank", macs=model.encoding_macs(texts, query=query), offline=offline):
        return model.embed(texts, query=query)


def embed_question(engine: Engine, encoder: str, question: str) -> np.ndarray:
    """Embed a question by an encoder, as a traced online call: (dim,)."""
    return embed(engine, encoder, [question], query=True, offline=False)[0]


def bm25_scores(engine: Engine, question: str, texts: Sequence[str]) -> np.ndarray:
    """Score texts for a question by BM25, traced: (text,), from 0."""
    with traced(engine, "rank"):
        return bm25.rank(question, texts, idf="lucene")


def as_share(scores: np.ndarray) -> np.ndarray:
    """Map BM25's scores to [0, 1): 2/pi atan."""
    return np.arctan(scores) * 2 / np.pi


def cosines(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return the cosines of vectors (text, dim) with another one (dim,): (text,)."""
    return vectors @ vector / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector))


def _read(cached: Reading, number: int, prompt: Prompt) -> Name:
    """Read a document after the preamble, unless it is cached."""
    name = ("document", number)
    if name not in cached.spans:
        ids = prompt.documents[number]
        cached.graph.add(unit_segment(name, ids, len(prompt.preamble), (PREAMBLE,)))
        cached.read([name], stage="documents", offline=True)
    return name


def _answer_after(
    cached: Reading, order: Sequence[int], prompt: Prompt, limits: Limits
) -> list[int]:
    cached.rewind()
    first = _read(cached, order[0], prompt)
    ids = [*(token for i in order[1:] for token in prompt.documents[i]), *prompt.ending]
    reading = cached.select([PREAMBLE, first], len(ids) + limits.max_new_tokens).again()
    return reading.generate(
        ids, len(prompt.preamble) + len(prompt.documents[order[0]]), (first,), limits
    )
