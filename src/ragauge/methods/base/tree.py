"""A store of documents after the documents before them, shared by the questions of a run."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from ragauge.cost.flop import call_macs
from ragauge.cost.trace import Call
from ragauge.engines.protocol import Capabilities, Capability, Limits, Span, SpanEngine
from ragauge.methods.base.method import (
    SPANS,
    Answer,
    Method,
    State,
    plain_row,
    read_and_generate,
    read_plain,
)
from ragauge.methods.base.states import PlainPrompt, PrefixCached
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveFloat

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache

Policy = Literal["pgdsf", "lru"]


@dataclass(frozen=True)
class TreeMethod(PlainPrompt):
    """A method whose documents come from a tree of stored prefixes, and are read and stored where
    they are missing.

    The questions of a run share one tree (`for_run`); without a run every question starts with an
    empty one.
    """

    policy: Policy = "pgdsf"
    store_gb: PositiveFloat = 1.0  # keys and values of all nodes
    stored: bool = True  # false: a plain prompt, for engines with a prefix cache of their own

    def required(self) -> Capabilities:
        return SPANS if self.stored else frozenset()

    def adapted_to(self, capabilities: Capabilities) -> Self:
        return self if Capability.SPANS in capabilities else replace(self, stored=False)

    def sequential(self) -> bool:
        return True

    def for_run(self) -> TreeRun:
        return TreeRun(self, self.new_tree())

    def usable_state(self) -> State:
        return self.state if self.stored else "nothing"

    def read_before(self) -> Method:
        return PrefixCached(replace(self, stored=False))

    def new_tree(self) -> DocumentTree:
        """Make an empty tree."""
        return DocumentTree(self.policy, self.store_gb * 1e9)

    @abstractmethod
    def arranged(
        self, engine: SpanEngine, tree: DocumentTree, prompt: Prompt
    ) -> tuple[list[int], Prompt]:
        """Choose the documents to read, by number in reading order, and the prompt to read."""

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> DocumentTree:
        tree = self.new_tree()
        self.read_preamble(engine, tree, prompt)
        return tree

    def answer(
        self, engine: SpanEngine, state: DocumentTree, prompt: Prompt, limits: Limits
    ) -> Answer:
        return self.answer_and_store(engine, state.without_documents(), prompt, limits)

    def read_preamble(self, engine: SpanEngine, tree: DocumentTree, prompt: Prompt) -> None:
        """Make the prompt's preamble a root of the tree, unless it is one."""
        if tuple(prompt.preamble) in tree.roots:
            return
        cache = None
        if self.stored:
            cache = engine.new_cache(len(prompt.preamble))
            engine.extend(cache, [plain_row(prompt.preamble)], stage="preamble", offline=True)
        tree.roots[tuple(prompt.preamble)] = _Node(cache, 0, None)

    def answer_and_store(
        self, engine: SpanEngine, tree: DocumentTree, prompt: Prompt, limits: Limits
    ) -> Answer:
        """Answer from documents in the tree and new ones, which are added to it."""
        order, prompt = self.arranged(engine, tree, prompt)
        documents = [prompt.documents[i] for i in order]
        question = prompt.ending
        root = tree.roots[tuple(prompt.preamble)]
        if not self.stored:
            tree.remember(root, documents)
            return Answer(read_plain(engine, prompt, documents, limits), tuple(order))
        cache = tree.read(engine, root, documents, len(question) + limits.max_new_tokens)
        row = plain_row(question, cache.length)
        return Answer(read_and_generate(engine, cache, row, limits), tuple(order))


@dataclass(frozen=True)
class TreeRun(Method):
    """A tree method for the questions of one run on one engine, which share a tree."""

    method: TreeMethod
    tree: DocumentTree

    @property
    def name(self) -> str:
        return self.method.name

    def required(self) -> Capabilities:
        return self.method.required()

    def sequential(self) -> bool:
        return True

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> None:
        self.method.read_preamble(engine, self.tree, prompt)

    def answer(self, engine: SpanEngine, state: None, prompt: Prompt, limits: Limits) -> Answer:
        return self.method.answer_and_store(engine, self.tree, prompt, limits)


@dataclass(eq=False)
class _Node:
    cache: Any  # KVCache of the document's own tokens; None in a tree of orders alone
    cost: float  # multiply-accumulates of reading them after the ancestors
    parent: _Node | None
    ids: tuple[int, ...] = ()
    children: dict[tuple[int, ...], _Node] = field(default_factory=dict)
    uses: int = 0
    used: int = 0  # when last, counted in uses of the tree
    priority: float = 0.0


class DocumentTree:
    """Nodes within a limit of bytes; preambles are roots and stay."""

    def __init__(self, policy: Policy, max_bytes: float) -> None:
        self.policy = policy
        self.max_bytes = max_bytes
        self.roots: dict[tuple[int, ...], _Node] = {}
        self.clock = 0.0
        self.now = 0

    def without_documents(self) -> Self:
        """Copy the tree with its preambles alone."""
        tree = type(self)(self.policy, self.max_bytes)
        tree.roots = {ids: _Node(root.cache, 0, None) for ids, root in self.roots.items()}
        return tree

    def nodes(self, node: _Node | None = None) -> Iterator[_Node]:
        """Yield all documents below a node, or in the tree."""
        for child in (node.children if node else self.roots).values():
            if child.parent:
                yield child
            yield from self.nodes(child)

    def longest(self, node: _Node, documents: Mapping[int, Sequence[int]]) -> tuple[int, list[int]]:
        """Return the tokens and the documents, by number, of the stored path below a node that
        holds the most tokens.
        """
        best: tuple[int, list[int]] = (0, [])
        for i, ids in documents.items():
            if child := node.children.get(tuple(ids)):
                tokens, rest = self.longest(
                    child, {j: other for j, other in documents.items() if j != i}
                )
                best = max(best, (tokens + len(ids), [i, *rest]), key=lambda path: path[0])
        return best

    def remember(self, root: _Node, documents: Sequence[Sequence[int]]) -> None:
        """Add an order of documents, whose keys and values the engine's own cache may have."""
        node = root
        for ids in map(tuple, documents):
            node = node.children.setdefault(ids, _Node(None, 0, node, ids))

    def read(
        self, engine: SpanEngine, root: _Node, documents: Sequence[Sequence[int]], room: int
    ) -> KVCache:
        """Return a cache of the root and the documents in this order, with `room` for more: stored
        ones and new ones.
        """
        path = []
        node = root
        started = time.perf_counter()
        cache = engine.join(
            root.cache, [Span(0, root.cache.length)], sum(map(len, documents)) + room
        )
        for ids in documents:
            if tuple(ids) not in node.children:
                break
            node = node.children[tuple(ids)]
            path.append(node)
            cache.append(node.cache, Span(0, node.cache.length))
        if path:
            engine.note(Call("load", (), (), macs=0, seconds=time.perf_counter() - started))
        for ids in documents[len(path) :]:
            past = cache.length
            [span] = engine.extend(cache, [plain_row(ids, past)], stage="documents").spans
            cost = call_macs(Call("documents", (len(ids),), (past,)), engine.shape)
            node = _Node(engine.join(cache, [span], 0), cost, node, tuple(ids))
            path.append(node)
        self._store(path)
        return cache

    def _store(self, path: Sequence[_Node]) -> None:
        """Count a use of these nodes, and add those that are new as far as they fit together."""
        self.now += 1
        used = sum(node.cache.bytes for node in self.nodes())
        for node in path:
            node.uses += 1
            node.used = self.now
            node.priority = self.clock + node.uses * node.cost / node.cache.bytes
            assert node.parent is not None
            if node.ids in node.parent.children:
                continue
            while used + node.cache.bytes > self.max_bytes:
                leaves = [
                    leaf for leaf in self.nodes() if not leaf.children and leaf.used < self.now
                ]
                if not leaves:
                    return
                evicted = min(
                    leaves, key=lambda leaf: leaf.priority if self.policy == "pgdsf" else leaf.used
                )
                assert evicted.parent is not None
                del evicted.parent.children[evicted.ids]
                self.clock = max(self.clock, evicted.priority)
                used -= evicted.cache.bytes
            node.parent.children[node.ids] = node
            used += node.cache.bytes
