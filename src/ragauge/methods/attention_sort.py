"""Attention sorting (Peysakhovich and Lerer 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

from ragauge.engines.protocol import Capability, Limits, Observed, SpanEngine
from ragauge.methods.base.method import FULL_ATTENTION, Answer, Method, generate, plain_row
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveInt


@dataclass(frozen=True)
class AttentionSort(Method):
    """Read the prompt, sort the documents by the attention that `observed` tokens pay them, read it
    again.

    Ascending, so that the document most attended to stands last. The answer comes from the last
    reading; an order that no longer changes ends the sorting early. The Superposition paper's cost
    (Table 1: 3.0 naive prompts, Table 7: 0.33 of its speed) is that of three readings in all, which
    `rounds` counts.
    """

    requires = FULL_ATTENTION

    rounds: PositiveInt = 3  # prompts read in all; the last one answers
    # query: all tokens of it, as Superposition's released code
    observed: Literal["last_token", "query"] = "last_token"

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        ranked = order = list(range(len(prompt.documents)))
        weights = [0.0] * len(order)  # attention on each document, in the prompt's own order
        cache = engine.new_cache(prompt.total_tokens + limits.max_new_tokens)
        for left in reversed(range(self.rounds)):
            order = ranked
            documents = [prompt.documents[i] for i in order]
            cache.truncate(0)
            stage = "sort" if left else "prompt"
            for tokens, observed in self._parts(prompt, documents):
                row = plain_row(tokens, cache.length)
                read = engine.extend(
                    cache, [row], stage=stage, last_logits=True, attention=observed
                )
                if observed:
                    attention = read.attention[0]  # to each token of the prompt
            edges = accumulate(map(len, documents), initial=len(prompt.preamble))
            for document, (start, stop) in zip(order, pairwise(edges), strict=True):
                weights[document] = float(attention[start:stop].sum())
            ranked = sorted(order, key=weights.__getitem__)
            # without weights: cost all rounds
            if ranked == order and Capability.WEIGHTS in engine.capabilities:
                break
        ids = generate(engine, cache, read.last_logits, prompt.total_tokens, limits)
        return Answer(ids, tuple(order), tuple(weights))

    def _parts(
        self, prompt: Prompt, documents: Sequence[list[int]]
    ) -> list[tuple[list[int], Observed | None]]:
        """Return the prompt's tokens in the parts that are read one after another, and which tokens
        are observed in each.
        """
        if self.observed == "last_token":
            return [(prompt.plain(documents), "last")]
        context = [*prompt.preamble, *(token for ids in documents for token in ids)]
        return [(context, None), (prompt.query, "all"), (prompt.task, None)]
