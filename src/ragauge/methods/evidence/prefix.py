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
        """Return the next tokens and the nodes that they lead to, in document order.

        A token after which one sentence ends and another goes on leads to two nodes: only the
        former settles there.
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
        """Return whether the prefix is of one sentence, or of identical ones, alone."""
        return not node.shared and len({self._ids[sentence] for sentence in node.sentences}) == 1


@dataclass(frozen=True)
class EvidenceContext:
    """The cache that was read before the evidence, and the logits after it."""

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
    """Return the `k` sentences whose prefixes have the highest mean log-probability, best first.

    A candidate that identifies a single sentence grows no further and competes by its score.
    Tokens do not distinguish identical sentences: each is a separate result with the
    same score. All ties go to the earlier sentence in the document.

    Args:
        rule: "exhaustive" is section 3.2's: every candidate goes on by its `k` likeliest tokens, up
            to k^steps of them, and all are ranked at the end. "beam" keeps the best `k` after every
            step: what the paper's time and Figure 2 suggest. "first_token" is the released code's:
            the k likeliest first tokens, each followed greedily, ranked by the first token alone.
    """
    beams = _Search(engine, context, k, rule, lambda node, _: trie.branches(node), trie.settled)
    return [
        Prefix(sentence, beam.node.depth, beam.score, beam.read)
        for beam in beams.run(trie.root)
        for sentence in beam.node.sentences
    ][:k]


def search_free(
    engine: SpanEngine, context: EvidenceContext, sentences: Sequence[Sequence[int]], k: int
) -> list[Prefix]:
    """Search without constraint: `k` sequences of 8 tokens (the paper's ablation).

    Each is matched back to the sentence (token ids), not taken yet, that has the longest run of its
    tokens; to the earlier one on a tie.
    """

    def likeliest(node: Node, logp: Tensor) -> list[tuple[int, Node]]:
        """Return the `k` likeliest tokens after a prefix."""
        allowed = logp.clone()
        allowed[list(engine.shape.eos)] = float("-inf")
        return [(token, Node((0,), node.depth + 1)) for token in allowed.topk(k).indices.tolist()]

    beams = _Search(engine, context, k, "beam", likeliest, lambda node: node.depth == FREE_TOKENS)
    matched = {}
    for beam in beams.run(Node((0,), 0))[: len(sentences)]:
        free = [i for i in range(len(sentences)) if i not in matched]
        best = max(free, key=lambda i: longest_run(beam.ids, sentences[i]))
        matched[best] = Prefix(best, 0, beam.score)
    return list(matched.values())


def longest_run(wanted: Sequence[int], sentence: Sequence[int]) -> int:
    """Return tokens of the longest run that both have."""
    if not set(wanted) & set(sentence):
        return 0
    return SequenceMatcher(None, wanted, sentence, autojunk=False).find_longest_match().size


@dataclass(frozen=True)
class _Search:
    """A search for the `k` best prefixes; each step reads every growing candidate's last token in
    one pass.
    """

    engine: SpanEngine
    context: EvidenceContext
    k: int
    rule: Rule
    branches: Branches
    settled: Callable[[Node], bool]

    def run(self, root: Node) -> list[_Beam]:
        """Return the candidates, best first."""
        logp = self.context.logits.float().log_softmax(-1)
        families = [self._grown(_Beam(root), logp, "beam")]
        # where a token both ends a sentence and goes on, the earlier sentence stands for it
        if self.rule == "first_token":
            latest_first = sorted(families[0], key=lambda b: b.node.sentences[0], reverse=True)
            families = [list({beam.ids: beam for beam in latest_first}.values())]
        pool = self._survivors(families)
        while True:
            growing = [beam for beam in pool if not self.settled(beam.node)]
            if not growing:
                return _best(pool, self.k)
            families = self._step(growing)
            if self.rule == "first_token":
                families = [[max(family, key=lambda beam: beam.total)] for family in families]
            finished = [[beam] for beam in pool if self.settled(beam.node)]
            pool = self._survivors([*finished, *families])

    def _step(self, growing: Sequence[_Beam]) -> list[list[_Beam]]:
        """Read the last token of each candidate, and grow each by the tokens that may follow."""
        rows = [
            Row([b.ids[-1]], [self.context.position + len(b.ids) - 1], (self.context.span, *b.read))
            for b in growing
        ]
        read = self.engine.extend(
            self.context.cache, rows, stage="prefix", parallel=True, last_logits=True, tree=True
        )
        assert read.last_logits is not None
        logp = read.last_logits.float().log_softmax(-1)
        return [
            self._grown(replace(beam, read=(*beam.read, span)), values, self.rule)
            for beam, span, values in zip(growing, read.spans, logp, strict=True)
        ]

    def _grown(self, beam: _Beam, logp: Tensor, rule: Rule) -> list[_Beam]:
        """Grow the beam by each token that may follow; `logp` (vocab,) is of the whole vocabulary."""
        following = self.branches(beam.node, logp)
        values = logp[[token for token, _ in following]].tolist()
        grown = []
        for (token, node), value in zip(following, values, strict=True):
            total = beam.total + value
            score = beam.score if rule == "first_token" else total / node.depth  # eq. 6
            grown.append(_Beam(node, (*beam.ids, token), total, score, beam.read))
        return grown

    def _survivors(self, families: Sequence[Sequence[_Beam]]) -> list[_Beam]:
        """Choose the candidates that go on."""
        if self.rule != "exhaustive":
            return _best(chain.from_iterable(families), self.k)
        pool = []
        # of one prefix: those with one of the `k` likeliest tokens, of which one may have two
        for family in families:
            ranked = _best(family, len(family))
            tokens = list(dict.fromkeys(beam.ids for beam in ranked))[: self.k]
            pool += [beam for beam in ranked if beam.ids in tokens]
        return pool


def _best(beams: Iterable[_Beam], k: int) -> list[_Beam]:
    return sorted(beams, key=lambda beam: (-beam.score, beam.node.sentences[0]))[:k]
