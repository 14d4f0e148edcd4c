"""LongLLMLingua (Jiang et al., ACL 2024): documents ranked and their text compressed by a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ragauge.cost.flop import call_macs
from ragauge.cost.hardware import Precision
from ragauge.engines.protocol import ANSWERING, Capabilities, Limits, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base.method import SPANS, Answer, Method, plain_row, read_plain
from ragauge.methods.prompts import Prompt
from ragauge.methods.prompts.templates import token_ids
from ragauge.options import Share

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.lm import LM

RESTRICTION = " We can get the answer to this question in the given documents."
EXTRA = 100  # tokens by which the selected documents may exceed the budget
PIECE = 200  # tokens compressed at a time


@dataclass(frozen=True)
class LongLLMLingua(Method):
    """The question's own perplexity ranks the documents; tokens that the question makes likelier
    remain.

    Sections 4.1 to 4.3 of the paper; released code: microsoft/LLMLingua, `prompt_compressor.py`,
    with the options of its README. Documents are ranked by the mean negative log-probability of the
    question and a restriction after them, and selected until they exceed the budget. In pieces of
    200 tokens, after the text compressed so far, a token's gain is its negative log-probability
    without the question less that with it; of each document the share of tokens with the largest
    gain remains, more of those ranked first. The paper and the released code have a small language
    model for this: `auxiliary`, of any vocabulary, in the data type and on the device of the model
    that answers. Without one that model compresses, too. All passes are online. Subquestions and
    the recovery of compressed names are left out. Requires log-probabilities.
    """

    without_caches = "`auxiliary`, a local model that compresses the prompt"

    # share of the prompt's tokens that is left; 1 keeps all
    rate: Annotated[float, Field(gt=0, le=1)] = 0.55
    # what the first document's share gains, the last one's loses
    dynamic: Share = 0.3
    reorder: bool = True  # the document ranked first stands first; else the order given
    # the model that ranks and compresses, a name or a source; default: the one that answers
    auxiliary: str = ""

    def required(self) -> Capabilities:
        return ANSWERING if self.auxiliary else ANSWERING | SPANS

    def assets(self) -> tuple[str, ...]:
        return (self.auxiliary,) if self.auxiliary else ()

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> None:
        if self.auxiliary:
            _load(self.auxiliary, engine)  # here, not when the first question is timed

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        if self.auxiliary:
            documents, surprise = self._shortened_by(_load(self.auxiliary, engine), engine, prompt)
        else:
            documents, surprise = self._shortened(engine, prompt)
        ids = read_plain(engine, prompt, documents.values(), limits)
        return Answer(ids, tuple(documents), tuple(-s for s in surprise))

    def _shortened_by(
        self, auxiliary: LM, engine: SpanEngine, prompt: Prompt
    ) -> tuple[dict[int, Any], list[float]]:
        """As `_shortened`, by another model, whose calls join the engine's trace; shortened
        documents are texts.
        """
        read = prompt.read_by(auxiliary.tokenizer)
        try:
            with auxiliary.tracing() as trace:
                left, surprise = self._shortened(auxiliary, read)
        except UserError as error:  # it is longer than that model's context
            raise UserError(f"auxiliary {self.auxiliary}: {error}") from None
        for call in trace:
            engine.note(replace(call, stage="auxiliary", macs=call_macs(call, auxiliary.shape)))
        if engine.capabilities >= SPANS:
            engine.peak_cache_bytes = max(
                engine.peak_cache_bytes, engine.cache_bytes + auxiliary.peak_cache_bytes
            )
        decode = auxiliary.tokenizer.decode
        texts = {
            i: prompt.documents[i] if ids == read.documents[i] else decode(ids)
            for i, ids in left.items()
        }
        return texts, surprise

    def _shortened(self, engine: SpanEngine, prompt: Prompt) -> tuple[dict[int, Any], list[float]]:
        """Shorten the documents, in the order in which they are read; and how much each surprises
        (document,).
        """
        question = [*prompt.query, *token_ids(engine.tokenizer, RESTRICTION)]
        texts = (_Text(engine, ids, len(question)) for ids in prompt.documents)
        surprise = [-float(text.logp(question).mean()) for text in texts]
        ranked = sorted(range(len(surprise)), key=surprise.__getitem__)
        lengths = [len(ids) for ids in prompt.documents]
        around = len(prompt.preamble) + len(prompt.ending)
        target = self.rate * (around + sum(lengths)) - around
        sums = accumulate((lengths[i] for i in ranked), initial=0)
        budget = max(0, target + EXTRA) if self.rate < 1 else float("inf")
        selected = [i for i, before in zip(ranked, sums, strict=False) if before <= budget]
        left = {i: prompt.documents[i] for i in selected}
        share = target / sum(lengths[i] for i in selected)
        if share < 1:
            left = dict(self._compressed(engine, left, share, [prompt.preamble[0], *question]))
        order = [i for i in (selected if self.reorder else sorted(selected)) if left[i]]
        return {i: left[i] for i in order}, surprise

    def _compressed(
        self, engine: SpanEngine, documents: dict[int, list[int]], share: float, question: list[int]
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the remaining tokens of each document, in rank order; `question` begins with the token
        that texts begin with.
        """
        tokens = sum(map(len, documents.values()))
        plain, with_question = (_Text(engine, start, tokens) for start in (question[:1], question))
        for rank, (document, ids) in enumerate(documents.items()):
            slope = 1 - 2 * rank / (len(documents) - 1) if len(documents) > 1 else 0.0
            keep = min(1.0, max(0.0, share + slope * self.dynamic))
            remaining = []
            for at in range(0, len(ids), PIECE):
                piece = ids[at : at + PIECE]
                gain = with_question.logp(piece) - plain.logp(piece)
                best = gain.sort(descending=True, stable=True).indices[: round(keep * len(piece))]
                chosen = [piece[i] for i in sorted(best.tolist())]
                plain.take(chosen)
                with_question.take(chosen)
                remaining += chosen
            yield document, remaining


class _Text:
    """A text that grows by the selected tokens of pieces that were tried after it."""

    def __init__(self, engine: SpanEngine, start: Sequence[int], room: int) -> None:
        self.engine = engine
        self.cache = engine.new_cache(len(start) + room + PIECE)
        # tokens not in the cache yet: at least one, whose logits the next one needs
        self.waiting = list(start)

    def logp(self, piece: Sequence[int]) -> Tensor:
        """Log-probability of each token of a piece after the text: (token,)."""
        length = self.cache.length
        ids = [*self.waiting, *piece]
        read = self.engine.extend(self.cache, [plain_row(ids, length)], stage="compress", logp=True)
        self.cache.truncate(length + len(self.waiting) - 1)
        return read.logp[0][-len(piece) :]

    def take(self, chosen: Sequence[int]) -> None:
        """Go on after these tokens of the piece tried last."""
        self.waiting = [self.waiting[-1], *chosen]


def _load(source: str, engine: SpanEngine) -> LM:
    """Return the auxiliary model of an engine, loaded once a process: in the engine's
    precision, or in float32 next to a server.
    """
    return _loaded(
        source, getattr(engine, "precision", Precision()), str(getattr(engine, "device", "cpu"))
    )


@lru_cache(maxsize=1)
def _loaded(source: str, precision: Precision, device: str) -> LM:
    from ragauge.engines.loading import load_lm

    return load_lm(source, device=device, **asdict(precision))
