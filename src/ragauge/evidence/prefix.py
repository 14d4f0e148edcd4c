"""Constrained sentence prefix decoding (CFIC): the sentences that a model would begin its evidence with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

from ragauge.engines.protocol import Row, Span, SpanEngine
from ragauge.evidence.trie import Node, Trie

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache

Rule = Literal["beam", "exhaustive", "first_token"]
FREE_TOKENS = 8  # of a prefix that nothing constrains (the paper's ablation)


@dataclass(frozen=True)
class EvidenceContext:
    """What has been read before the evidence: all of a cache, and the logits after it."""

    cache: KVCache
    span: Span
    logits: Tensor  # (vocab,) of the evidence's first token
    position: float  # of that token


@dataclass(frozen=True)
class Prefix:
    """The beginning of a sentence."""

    sentence: int
    tokens: int  # of the prefix
    score: float  # mean log-probability of these tokens (eq. 6)
    read: tuple[Span, ...] = ()  # slots of those of its tokens, from the first, that the cache holds


@dataclass(frozen=True)
class Search:
    """The best prefixes, best first."""

    prefixes: tuple[Prefix, ...]
    steps: int  # tokens decoded one after another; the first needs no pass of its own


@dataclass(frozen=True)
class _Beam:
    node: Node
    ids: tuple[int, ...] = ()
    total: float = 0.0  # log-probability of the ids
    score: float = 0.0
    read: tuple[Span, ...] = ()


class _FreeText:
    """In place of a trie: any text of `FREE_TOKENS` tokens; of each prefix only the `k` likeliest tokens matter."""

    root = Node((0,), 0)

    def __init__(self, k: int, barred: Sequence[int]) -> None:
        self.k, self.barred = k, list(barred)

    def branches(self, node: Node, logp: Tensor) -> list[tuple[int, Node]]:
        allowed = logp.clone()
        allowed[self.barred] = float("-inf")
        tokens = allowed.topk(self.k).indices.tolist()
        return [(token, Node((0,), node.depth + 1)) for token in tokens]

    def settled(self, node: Node) -> bool:
        return node.depth == FREE_TOKENS


def search(engine: SpanEngine, context: EvidenceContext, trie: Trie, k: int, rule: Rule = "beam") -> Search:
    """The `k` sentences whose prefixes have the highest mean log-probability.

    A candidate that identifies a single sentence grows no further and competes by its score.
    Identical sentences cannot be told apart by their tokens: each is a separate result with the same score. All ties go
    to the earlier sentence in the document.

    Args:
        rule: "exhaustive" is section 3.2's: every candidate goes on by its `k` likeliest tokens, up to k^steps of them,
            and all are ranked at the end. "beam" keeps the best `k` after every step: what the paper's time and Figure
            2 suggest. "first_token" is the released code's: the k likeliest first tokens, each followed greedily,
            ranked by the first token alone.
    """
    pool, steps = _search(engine, context, trie, k, rule)
    found = [
        Prefix(sentence, beam.node.depth, beam.score, beam.read) for beam in pool for sentence in beam.node.sentences
    ]
    return Search(tuple(found[:k]), steps)


def search_free(engine: SpanEngine, context: EvidenceContext, sentences: Sequence[Sequence[int]], k: int) -> Search:
    """The paper's ablation without constraint: `k` sequences of 8 tokens, each matched back to a sentence.

    A sequence goes to the sentence, not taken yet, that has the longest run of its tokens; to the earlier on a tie.

    Args:
        sentences: token ids of each sentence.
    """
    pool, steps = _search(engine, context, _FreeText(k, engine.shape.eos), k, "beam")
    found: dict[int, Prefix] = {}
    for beam in pool[: len(sentences)]:
        free = [i for i in range(len(sentences)) if i not in found]
        best = max(free, key=lambda i: longest_run(beam.ids, sentences[i]))
        found[best] = Prefix(best, 0, beam.score)
    return Search(tuple(found.values()), steps)


def longest_run(wanted: Sequence[int], sentence: Sequence[int]) -> int:
    """Tokens of the longest run that both have."""
    if not set(wanted) & set(sentence):
        return 0
    return SequenceMatcher(None, wanted, sentence, autojunk=False).find_longest_match().size


def _search(
    engine: SpanEngine, context: EvidenceContext, allowed: Trie | _FreeText, k: int, rule: Rule
) -> tuple[list[_Beam], int]:
    """The candidates, best first, and how many tokens were decoded one after another."""
    families = [_grown(_Beam(allowed.root), context.logits.float().log_softmax(-1), allowed, "beam")]
    if rule == "first_token":  # where a token both ends a sentence and goes on, the earlier sentence stands for it
        families = [list({beam.ids: beam for beam in reversed(families[0])}.values())]
    pool, steps = _kept(families, k, rule), 1
    while growing := [beam for beam in pool if not allowed.settled(beam.node)]:
        read, logp = _step(engine, context, growing)
        families = [_grown(beam, logp[i], allowed, rule) for i, beam in enumerate(read)]
        if rule == "first_token":
            families = [[max(family, key=lambda beam: beam.total)] for family in families]
        pool = _kept([*([beam] for beam in pool if allowed.settled(beam.node)), *families], k, rule)
        steps += 1
    return _best([pool], k), steps


def _kept(families: Sequence[Sequence[_Beam]], k: int, rule: Rule) -> list[_Beam]:
    """The candidates that go on."""
    if rule == "exhaustive":
        return [beam for family in families for beam in _of_likeliest_tokens(family, k)]
    return _best(families, k)


def _of_likeliest_tokens(family: Sequence[_Beam], k: int) -> list[_Beam]:
    """Those of a prefix's continuations that have one of the `k` likeliest tokens; a token may have two."""
    ranked = _best([family], len(family))
    tokens = list(dict.fromkeys(beam.ids for beam in ranked))[:k]
    return [beam for beam in ranked if beam.ids in tokens]


def _step(engine: SpanEngine, context: EvidenceContext, beams: Sequence[_Beam]) -> tuple[list[_Beam], Tensor]:
    """Read every beam's last token in one pass: the beams with it read, and (beam, vocab) log-probabilities."""
    rows = [Row([beam.ids[-1]], [context.position + len(beam.ids) - 1], (context.span, *beam.read)) for beam in beams]
    read = engine.extend(context.cache, rows, stage="prefix", parallel=True, last_logits=True, tree=True)
    assert read.last_logits is not None
    behind = [replace(beam, read=(*beam.read, span)) for beam, span in zip(beams, read.spans, strict=True)]
    return behind, read.last_logits.float().log_softmax(-1)


def _grown(beam: _Beam, logp: Tensor, allowed: Trie | _FreeText, rule: Rule) -> list[_Beam]:
    """The beam by each token that may follow; `logp` (vocab,) is of the whole vocabulary."""
    branches = allowed.branches(beam.node) if isinstance(allowed, Trie) else allowed.branches(beam.node, logp)
    values = logp[[token for token, _ in branches]].tolist()
    grown = []
    for (token, node), value in zip(branches, values, strict=True):
        total = beam.total + value
        score = beam.score if rule == "first_token" else total / node.depth  # eq. 6
        grown.append(_Beam(node, (*beam.ids, token), total, score, beam.read))
    return grown


def _best(families: Iterable[Iterable[_Beam]], k: int) -> list[_Beam]:
    beams = (beam for family in families for beam in family)
    return sorted(beams, key=lambda beam: (-beam.score, beam.node.sentences[0]))[:k]
