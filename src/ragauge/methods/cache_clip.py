"""CacheClip (Yang et al., 2025, arXiv 2510.10129)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ragauge.engines.protocol import Capability, SpanEngine
from ragauge.methods.base.grounding import finder_of
from ragauge.methods.base.method import plain_row
from ragauge.methods.base.stored import Assembled, Reuse, Stored, read_apart
from ragauge.methods.compressors.base import Window
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveInt, Share

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CacheClip(Reuse):
    """Stored documents in their places; a small model's attention chooses the tokens that are read
    again.

    Only the abstracts of the paper's two versions and summaries of it were available, no equations
    and no code. From them: documents are stored behind a shared prefix, so that none has an
    attention sink of its own; an auxiliary model reads the prompt; what its last layer attends to
    is read again in windows of neighbouring tokens, 20% of the documents. Decided here: the prefix
    is the preamble; the question's attention is averaged over its tokens and heads; a window may
    begin anywhere, scores the mean of its tokens and has 8. Left out: the auxiliary's fine-tuning,
    the other vocabulary of the paper's SmolLM2-135M next to Qwen2.5-14B, and its place on the CPU
    next to a GPU.

    The auxiliary is the model's finder, of the same vocabulary, and reads online. Without a finder
    the model is its own auxiliary. That is not the paper's method: at all layers it takes longer
    than the plain prompt and only shows what the choice is worth; the paper compares its auxiliary
    with the large model's first `layers`. Requires watched queries, tokens rewritten in place and
    keys moved.
    """

    finds = True

    recompute: Share = 0.2  # share of the documents' tokens
    # neighbouring tokens that are chosen together; 1: each alone
    window: PositiveInt = 8
    # share of the auxiliary's layers that read; the last one counts
    layers: Annotated[float, Field(gt=0, le=1)] = 1.0

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, prompt, behind=len(prompt.preamble))

    def unsupported(self, engine: SpanEngine) -> str | None:
        window = finder_of(engine).shape.shortest_window
        if window is None:
            return None
        return f"the auxiliary model has a sliding window of {window} tokens"

    def chosen(self, assembled: Assembled) -> list[int]:
        span = assembled.document_slots
        attention = _question_attention(
            finder_of(assembled.engine), assembled.ids, assembled.question, self.layers
        )
        scores = window_scores(attention[span.start :], self.window)
        return assembled.largest(scores, self.recompute)


def _question_attention(
    auxiliary: SpanEngine, ids: list[int], question: list[int], share: float
) -> Tensor:
    """Return the attention (token,) of a question to each token before it in the last of the first
    layers, a share of all.
    """
    import torch

    last = max(1, round(share * auxiliary.shape.layers))
    layers = None if last == auxiliary.shape.layers else (0, last)
    cache = auxiliary.new_cache(len(ids) + len(question))
    watch = Window(len(question))
    auxiliary.extend(cache, [plain_row(ids)], stage="auxiliary", layers=layers)
    cache.watch = watch
    auxiliary.extend(cache, [plain_row(question, len(ids))], stage="auxiliary", layers=layers)
    if Capability.WEIGHTS not in auxiliary.capabilities:
        return torch.zeros(len(ids))
    return watch.attention(last - 1, cache)[..., : len(ids)].mean((0, 1))


def window_scores(scores: Tensor, size: int) -> Tensor:
    """Give each token (token,) its windows' best mean: the largest are the best windows, one after
    another.
    """
    import torch.nn.functional as F

    size = min(size, len(scores))
    means = F.avg_pool1d(scores[None], size, stride=1)
    return F.max_pool1d(F.pad(means, (size - 1, size - 1), value=float("-inf")), size, stride=1)[0]
