"""Constrained sentence prefix decoding (CFIC): the sentences that a model would begin its evidence
with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain
from typing import TYPE_CHECKING, Literal

from ragauge.engines.protocol import Row, Span, SpanEngine

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache

    Branches = Callable[["Node", Tensor], list[tuple[int, "Node"]]]
    """(prefix, log-probability of every token after it) -> the tokens that may follow and where
    they lead.
    """

Rule = Literal["beam", "exhaustive", "first_token"]
FREE_TOKENS = 8  # of a prefix that nothing constrains (the paper's ablation)
LONGEST = 64  # tokens of a prefix; sentences that agree in so many count as identical


@dataclass(frozen=True)
class Node:
    """A prefix of `depth` tokens, known by the sentences that begin with it (in document order)."""

    sentences: tuple[int, ...]
    depth: int
    shared: bool = False  # another sentence is these tokens and no more


class Trie:
    """A trie over sentences' token ids; nodes are made on demand. Identical sentences share one
    settled node.
    """

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self._ids = [tuple(ids[:LONGEST]) for ids in sentences]
        self.root = Node(tuple(range(len(self._ids))), 0)

    def branches(self, node: Node) -> list[tuple[int, Node]]:
        """The next tokens and the nodes that they lead to, in document order. A token after which
        one sentence ends and another goes on leads to two nodes: only the former settles there.
        """
        by_token: dict[int, list[int]] = {}
        for sentence in node.sentences:
            by_token.setdefault(self._ids[sentence][node.depth], []).append(sentence)
        depth = node.depth + 1
        branches = []
        for token, sentences in by_token.items():
            ended = tuple(s for s in sentences if len(self._ids[s]) == depth)
            going = tuple(s for s in sentences if len(self._ids[s]) > depth)
            branches += [(token, Node(ended, depth))] if ended else []
            branches += [(token, Node(going, depth, shared=bool(ended)))] if going else []
        return branches

    def settled(self, node: Node) -> bool:
        """Whether the prefix is of one sentence, or of identical ones, alone."""
        return not node.shared and len({self._ids[sentence] for sentence in node.sentences}) == 1


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
    # slots of those of its tokens, from the first, that the cache holds
    read: tuple[Span, ...] = ()


@dataclass(frozen=True)
class _Beam:
    node: Node
    ids: tuple[int, ...] = ()
    total: float = 0.0  # log-probability of the ids
    score: float = 0.0
    read: tuple[Span, ...] = ()


def search(
    engine: SpanEngine, context: EvidenceContext, trie: Trie, k: int, rule: Rule = "beam"
) -> list[Prefix]:
    """The `k` sentences whose prefixes have the highest mean log-probability, best first.

    A candidate that identifies a single sentence grows no further and competes by its score.
    Identical sentences cannot be told apart by their tokens: each is a separate result with the
    same score. All ties go to the earlier sentence in the document.

    Args:
        rule: "exhaustive" is section 3.2's: every candidate goes on by its `k` likeliest tokens, up
            to k^steps of them, and all are ranked at the end. "beam" keeps the best `k` after every
            step: what the paper's time and Figure 2 suggest. "first_token" is the released code's:
            the k likeliest first tokens, each followed greedily, ranked by the first token alone.
    """
    pool = _search(
        engine, context, trie.root, lambda node, _: trie.branches(node), trie.settled, k, rule
    )
    prefixes = (
        Prefix(sentence, b.node.depth, b.score, b.read)
        for b in pool
        for sentence in b.node.sentences
    )
    return list(prefixes)[:k]


def search_free(
    engine: SpanEngine, context: EvidenceContext, sentences: Sequence[Sequence[int]], k: int
) -> list[Prefix]:
    """The paper's ablation without constraint: `k` sequences of 8 tokens, each matched back to the
    sentence (token ids), not taken yet, that has the longest run of its tokens; to the earlier on a
    tie.
    """

    def likeliest(node: Node, logp: Tensor) -> list[tuple[int, Node]]:
        """Of each prefix only the `k` likeliest tokens matter."""
        allowed = logp.clone()
        allowed[list(engine.shape.eos)] = float("-inf")
        return [(token, Node((0,), node.depth + 1)) for token in allowed.topk(k).indices.tolist()]

    pool = _search(
        engine, context, Node((0,), 0), likeliest, lambda node: node.depth == FREE_TOKENS, k, "beam"
    )
    matched: dict[int, Prefix] = {}
    for beam in pool[: len(sentences)]:
        free = [i for i in range(len(sentences)) if i not in matched]
        best = max(free, key=lambda i: longest_run(beam.ids, sentences[i]))
        matched[best] = Prefix(best, 0, beam.score)
    return list(matched.values())


def longest_run(wanted: Sequence[int], sentence: Sequence[int]) -> int:
    """Tokens of the longest run that both have."""
    if not set(wanted) & set(sentence):
        return 0
    return SequenceMatcher(None, wanted, sentence, autojunk=False).find_longest_match().size


def _search(
    engine: SpanEngine,
    context: EvidenceContext,
    root: Node,
    branches: Branches,
    settled: Callable[[Node], bool],
    k: int,
    rule: Rule,
) -> list[_Beam]:
    """The candidates, best first; each step reads every growing candidate's last token in one pass."""
    families = [_grown(_Beam(root), context.logits.float().log_softmax(-1), branches, "beam")]
    # where a token both ends a sentence and goes on, the earlier sentence stands for it
    if rule == "first_token":
        latest_first = sorted(families[0], key=lambda beam: beam.node.sentences[0], reverse=True)
        families = [list({beam.ids: beam for beam in latest_first}.values())]
    pool = _survivors(families, k, rule)
    while growing := [beam for beam in pool if not settled(beam.node)]:
        rows = [
            Row([b.ids[-1]], [context.position + len(b.ids) - 1], (context.span, *b.read))
            for b in growing
        ]
        read = engine.extend(
            context.cache, rows, stage="prefix", parallel=True, last_logits=True, tree=True
        )
        assert read.last_logits is not None
        logp = read.last_logits.float().log_softmax(-1)
        behind = [
            replace(beam, read=(*beam.read, span))
            for beam, span in zip(growing, read.spans, strict=True)
        ]
        families = [
            _grown(beam, values, branches, rule) for beam, values in zip(behind, logp, strict=True)
        ]
        if rule == "first_token":
            families = [[max(family, key=lambda beam: beam.total)] for family in families]
        pool = _survivors([*([beam] for beam in pool if settled(beam.node)), *families], k, rule)
    return _best(pool, k)


def _survivors(families: Sequence[Sequence[_Beam]], k: int, rule: Rule) -> list[_Beam]:
    """The candidates that go on."""
    if rule != "exhaustive":
        return _best(chain.from_iterable(families), k)
    pool = []
    # of one prefix: those with one of the `k` likeliest tokens, of which one may have two
    for family in families:
        ranked = _best(family, len(family))
        tokens = list(dict.fromkeys(beam.ids for beam in ranked))[:k]
        pool += [beam for beam in ranked if beam.ids in tokens]
    return pool


def _grown(beam: _Beam, logp: Tensor, branches: Branches, rule: Rule) -> list[_Beam]:
    """The beam by each token that may follow; `logp` (vocab,) is of the whole vocabulary."""
    following = branches(beam.node, logp)
    values = logp[[token for token, _ in following]].tolist()
    grown = []
    for (token, node), value in zip(following, values, strict=True):
        total = beam.total + value
        score = beam.score if rule == "first_token" else total / node.depth  # eq. 6
        grown.append(_Beam(node, (*beam.ids, token), total, score, beam.read))
    return grown


def _best(beams: Iterable[_Beam], k: int) -> list[_Beam]:
    return sorted(beams, key=lambda beam: (-beam.score, beam.node.sentences[0]))[:k]
