"""Superposition Prompting (Merth et al., ICML 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from ragauge.engines.protocol import Extension, Limits, Observed, Span, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base.method import FULL_ATTENTION, Answer, Method, State
from ragauge.methods.base.reading import Reading, read_preamble
from ragauge.methods.base.windows import Paths, split_paths
from ragauge.methods.prompts import (
    LAYOUTS,
    PREAMBLE,
    Name,
    Prompt,
    Segment,
    equilibrium,
    unit_segment,
)
from ragauge.options import PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from ragauge.methods.base.method import Compress

# reserved for each path's copy of the query, so that reading them copies nothing
QUERY_TOKENS_PER_PATH = 48
ANSWER_TOKENS = 256  # reserved for the task and the response


@dataclass(frozen=True)
class Superposition(Method):
    """Documents are read in parallel paths, each with its own copy of the query; unlikely paths are
    pruned.

    Section 3 of the paper. The graph is the fork-join: preamble -> document i -> query i -> task.
    Path caching reads the documents before the query is known, path parallelization reads all paths
    in one batch, path pruning keeps the `top_k` most salient. The first two never change the
    answer. With `iterations` > 1 (section 4.1.2, for questions of several hops) the selected
    documents join the prefix of the next round over the remaining ones; only the first round can be
    cached. `factor` is the superposition factor of Figure 5: adjacent documents are joined until
    there are that many paths.

    Equilibrium positions (section 3.2.2, equation 1 and Algorithm 1) put token j of document d_i at
    |p| + j S / |d_i| and every query at |p| + S, where S = n / sum(1 / |d_i|) is the harmonic mean
    of the lengths of the documents. With `spacing` = set it is over the n documents of the question,
    as in the paper, so that a path cached for one set (section 3.3.1) serves only sets of the same
    S; with corpus it is over all documents of the data set, each once, so that paths are cached
    before anything is retrieved. In either a document of more than S tokens is squeezed to steps
    below 1, not cut. Left-aligned paths do not depend on the set, only where their queries start
    does.
    """

    requires = FULL_ATTENTION
    state = "set"  # equilibrium positions follow from the lengths of the documents

    top_k: PositiveInt = 1  # paths selected in each round
    positions: Literal["equilibrium", "left_aligned"] = "equilibrium"
    # of equilibrium positions: what S is the harmonic mean of
    spacing: Literal["set", "corpus"] = "set"
    # "none" keeps every path
    saliency: Literal["bayesian", "query", "attention", "none"] = "bayesian"
    # of the attention of query tokens to document tokens: section 5.2 averages, released code sums
    reduce: Literal["mean", "sum"] = "mean"
    path_caching: bool = True
    path_parallelization: bool = True
    path_pruning: bool = True
    factor: PositiveInt | None = None  # paths; None: one a document
    iterations: PositiveInt = 1
    # paths that a round but the last selects; one: as the released code
    hops: Literal["top_k", "one"] = "top_k"
    # the released code's: drop the first token of every segment after the preamble
    drop_first_token: bool = False
    # the released code's: bias paths by saliency
    path_temperature: PositiveFloat | None = None

    def usable_state(self) -> State:
        if not self.path_caching:
            return "nothing"
        apart = self.positions == "left_aligned" or self.reads_corpus()
        return "documents" if apart and self.factor is None else "set"

    @property
    def selected(self) -> list[int]:
        """The number of paths that each round selects. With hops of one and k = 1 there is a round
        more: what the compute cycles of Table 2 were counted with.
        """
        if self.hops == "top_k" or self.iterations == 1:
            return [self.top_k] * self.iterations
        return [1] * (self.iterations - (self.top_k > 1)) + [self.top_k]

    @property
    def prunes(self) -> bool:
        return self.path_pruning and self.saliency != "none"

    def checked(self, where: str = "") -> Self:
        if self.path_temperature is not None and not self.prunes:
            raise UserError(
                f"{where}.path_temperature: requires path_pruning and a saliency, which it biases paths by"
            )
        apart = self.positions == "equilibrium" and not (self.factor or self.drop_first_token)
        if self.reads_corpus() and not apart:
            raise UserError(
                f"{where}.spacing: corpus requires positions: equilibrium, and paths of one document"
                " with all of its tokens (no factor, no drop_first_token)"
            )
        return self

    def reads_corpus(self) -> bool:
        return self.spacing == "corpus"

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> _Round | None:
        return self._first_round(engine, prompt, offline=True) if self.path_caching else None

    def answer(
        self, engine: SpanEngine, state: _Round | None, prompt: Prompt, limits: Limits
    ) -> Answer:
        fresh = replace(state, reading=state.reading.again()) if state else None
        current = fresh or self._first_round(engine, prompt, offline=False)
        selected = []
        saliency: list[float | None] = [None] * len(prompt.documents)
        for left, top_k in zip(reversed(range(len(self.selected))), self.selected, strict=True):
            scores = self._read_queries(current, prompt)
            # ties: the earlier path
            ranked = sorted(range(len(scores)), key=lambda i: -scores[i])[:top_k]
            chosen = sorted(ranked) if self.prunes else list(range(len(current.paths)))
            for path, score in zip(current.paths, scores, strict=False):
                for document in path:
                    saliency[document] = score
            selected += [document for path in chosen for document in current.paths[path]]
            remaining = [i for i in range(len(prompt.documents)) if i not in selected]
            if not left or not remaining:
                break
            current = self._next_round(current, chosen, remaining, prompt)
        return Answer(
            self._respond(current, chosen, scores, prompt, limits), tuple(selected), tuple(saliency)
        )

    def _first_round(self, engine: SpanEngine, prompt: Prompt, offline: bool) -> _Round:
        paths = split_paths(len(prompt.documents), self.factor)
        room = sum(map(len, prompt.documents)) + len(paths) * QUERY_TOKENS_PER_PATH + ANSWER_TOKENS
        reading = read_preamble(engine, prompt, room, offline=offline)
        return self._read_documents(
            reading, paths, [PREAMBLE], len(prompt.preamble), prompt, offline
        )

    def _next_round(
        self, last: _Round, chosen: Sequence[int], remaining: Sequence[int], prompt: Prompt
    ) -> _Round:
        """Read the remaining documents behind the selected ones, without their queries.

        Positions go on after the prefix's largest one (Algorithm 1).
        """
        prefix = [*last.prefix, *(last.documents[path] for path in chosen)]
        room = (
            sum(len(prompt.documents[i]) + QUERY_TOKENS_PER_PATH for i in remaining) + ANSWER_TOKENS
        )
        reading = last.reading.select(prefix, room)
        reading.graph = reading.graph.part(prefix)
        start = max(position for name in prefix for position in reading.graph[name].positions) + 1
        paths: Paths = [(i,) for i in remaining]
        return self._read_documents(reading, paths, prefix, start, prompt, offline=False)

    def _read_documents(
        self,
        reading: Reading,
        paths: Paths,
        prefix: Sequence[Name],
        start: float,
        prompt: Prompt,
        offline: bool,
    ) -> _Round:
        ids = [self._trim([token for i in path for token in prompt.documents[i]]) for path in paths]
        lengths = [len(d) for d in ids]
        if self.reads_corpus():
            if prompt.corpus_spacing is None:
                raise UserError(
                    "superposition.spacing: corpus needs the documents of a data set, and here is"
                    " only one question's; choose set"
                )
            positions, length = equilibrium(lengths, start, prompt.corpus_spacing)
        else:
            positions, length = LAYOUTS[self.positions](lengths, start)
        names = [("document", path[0]) for path in paths]
        for name, tokens, at in zip(names, ids, positions, strict=True):
            reading.graph.add(Segment(name, tokens, at, tuple(prefix)))
        logp = self.prunes and self.saliency == "bayesian"
        parallel = self.path_parallelization
        read = reading.read(names, stage="documents", offline=offline, parallel=parallel, logp=logp)
        prior = mean_logp(read) if logp else [0.0] * len(paths)
        return _Round(reading, paths, names, tuple(prefix), start + length, prior)

    def _read_queries(self, current: _Round, prompt: Prompt) -> list[float]:
        """Read a copy of the query on every path; the paths' saliency, empty where nothing is
        pruned. With "attention" it is that of the query's tokens to the document's.
        """
        reading = current.reading
        query = self._trim(prompt.query)
        for document, name in zip(current.documents, current.queries, strict=True):
            reading.graph.add(unit_segment(name, query, current.stop, (document,)))
        parallel = self.path_parallelization
        attention: Observed | None = "all" if self.prunes and self.saliency == "attention" else None
        logp = self.prunes and not attention
        read = reading.read(
            current.queries, stage="query", parallel=parallel, logp=logp, attention=attention
        )
        if attention:
            scores = []
            for document, name, weights in zip(
                current.documents, current.queries, read.attention, strict=True
            ):
                start = sum(len(reading.spans[a]) for a in reading.past_of(name) if a != document)
                on_document = weights[start : start + len(reading.spans[document])]
                if self.reduce == "sum":
                    scores.append(float(on_document.sum()) * len(query))
                else:
                    scores.append(float(on_document.mean()))
            return scores
        return [q + d for q, d in zip(mean_logp(read), current.prior, strict=True)] if logp else []

    def _respond(
        self,
        current: _Round,
        chosen: Sequence[int],
        scores: Sequence[float],
        prompt: Prompt,
        limits: Limits,
    ) -> list[int]:
        """Generate a response that sees the preamble and all selected documents and queries."""
        names = [
            *current.prefix,
            *(current.documents[p] for p in chosen),
            *(current.queries[p] for p in chosen),
        ]
        task = self._trim(prompt.task)
        reading = current.reading.select(names, len(task) + limits.max_new_tokens)
        # log softmax(score / temperature), less its maximum
        if self.path_temperature is not None and scores:
            import torch

            log_weights = (
                torch.tensor([scores[p] for p in chosen]).div(self.path_temperature).log_softmax(0)
            )
            for path, value in zip(chosen, (log_weights - log_weights.max()).tolist(), strict=True):
                for name in (current.documents[path], current.queries[path]):
                    reading.cache.add_bias(reading.spans[name], value)
        return reading.generate(task, current.stop + len(self._trim(prompt.query)), names, limits)

    def _trim(self, ids: list[int]) -> list[int]:
        return ids[1:] if self.drop_first_token and len(ids) > 1 else ids


@dataclass(frozen=True)
class _Round:
    """Parallel paths over one prefix, their documents read."""

    reading: Reading
    paths: Paths
    documents: list[Name]  # one segment a path
    prefix: tuple[Name, ...]
    stop: float  # position after the documents, where queries start
    # mean log P(document | prefix) of each path; zeros where the saliency does not need it
    prior: list[float]

    @property
    def queries(self) -> list[Name]:
        return [("query", number) for _, number in self.documents]

    def compressed(self, compress: Compress) -> _Round:
        """Return the same paths, their documents compressed; questions see their remaining tokens."""
        old = self.reading
        before = [self.reading.spans[name] for name in self.prefix]
        room = (
            sum(len(old.spans[name]) + QUERY_TOKENS_PER_PATH for name in self.documents)
            + ANSWER_TOKENS
        )
        reading = old.select(self.prefix, room)
        for name in self.documents:
            smaller = compress(old.cache, before, old.spans[name], old.graph[name].ids)
            reading.spans[name] = Span(reading.cache.length, reading.cache.length + smaller.length)
            reading.cache.append(smaller, Span(0, smaller.length))
        return replace(self, reading=reading)


def mean_logp(read: Extension) -> list[float]:
    """Return mean log-probability of each row's tokens (equation 2b's two terms); a row of one
    token has none and scores 0.
    """
    return [float(values.mean()) if len(values) else 0.0 for values in read.logp]
