"""The trie of a document's sentences: the tokens after a prefix, and when it belongs to one sentence alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 64  # tokens of a prefix; sentences that agree in so many count as identical


@dataclass(frozen=True)
class Node:
    """A prefix of `depth` tokens, known by the sentences that begin with it (in document order)."""

    sentences: tuple[int, ...]
    depth: int
    shared: bool = False  # another sentence is these tokens and no more


class Trie:
    """A trie over sentences' token ids; nodes are made on demand.

    Identical sentences stay together in one settled node, each with its own number and so its own place.
    """

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self._ids = [tuple(ids[:LONGEST]) for ids in sentences]
        self.root = Node(tuple(range(len(self._ids))), 0)

    def branches(self, node: Node) -> list[tuple[int, Node]]:
        """The next tokens and the nodes that they lead to, in document order.

        A token after which one sentence ends and another goes on leads to two nodes: only the former settles there.
        """
        by_token: dict[int, list[int]] = {}
        for sentence in node.sentences:
            by_token.setdefault(self._ids[sentence][node.depth], []).append(sentence)
        depth, branches = node.depth + 1, []
        for token, sentences in by_token.items():
            ended = tuple(s for s in sentences if len(self._ids[s]) == depth)
            going = tuple(s for s in sentences if len(self._ids[s]) > depth)
            branches += [(token, Node(ended, depth))] if ended else []
            branches += [(token, Node(going, depth, shared=bool(ended)))] if going else []
        return branches

    def settled(self, node: Node) -> bool:
        """Whether the prefix is of one sentence, or of identical ones, alone."""
        return not node.shared and len({self._ids[sentence] for sentence in node.sentences}) == 1
