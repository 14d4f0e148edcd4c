"""ContextPilot (Jiang et al., MLSys 2026, arXiv 2511.03475): documents in the order whose prefixes are cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self
from weakref import WeakKeyDictionary

from ragauge.engines.protocol import Capabilities, Capability, Engine, Limits
from ragauge.methods.base import SPANS, Answer, read_plain
from ragauge.methods.base.tree import TreeMethod
from ragauge.prompts import Prompt
from ragauge.prompts.templates import token_ids

POSITION_WEIGHT = 0.001  # alpha, of the distance between two contexts
ANNOTATION = (
    "Read the documents in this importance ranking: {ranking}\nPrioritize information from higher-ranked documents.\n"
)


@dataclass(frozen=True)
class ContextPilot(TreeMethod):
    """A context index of the prompts so far decides the order of a question's documents; repeated ones are left out.

    The paper's order, in the form of the released code, EfficientContext/ContextPilot, `server/live_index.py`, for one
    request after another. The index is a tree of document lists. A question goes down by the least distance, 1 - shared
    / longer list + 0.001 x mean difference of places; documents that it shares with the node where it arrives come
    first, in that node's order, the others follow in their own. The keys and values come from `prefix_tree`'s store, or
    with `stored` = false from an engine's own prefix cache, as a server has one: only the prompt differs there. The
    paper's annotation names the documents by their place in the prompt, in the order given; ours is off by default, so
    that answers are `naive`'s in the order read. Left out: the scheduling of several requests, evictions that an engine
    reports, and references to earlier turns or to equal blocks of lines, which question answering has none of.
    """

    reorder: bool = True  # order documents by the index; else as given
    deduplicate: bool = True  # read a document that a prompt has twice once, where it first stands
    annotate: bool = False  # write the order given, as a ranking, before the question
    stored: bool = True  # false: a plain prompt, for engines with a prefix cache of their own

    def required(self) -> Capabilities:
        return (SPANS if self.stored else frozenset()) | ({Capability.TEXT} if self.annotate else frozenset())

    def adapted_to(self, capabilities: Capabilities) -> Self:
        """Return a copy that leaves caching to an engine without key-value caches here."""
        return self if Capability.SPANS in capabilities else replace(self, stored=False)

    def prepare(self, engine: Any, prompt: Prompt) -> Any:
        return super().prepare(engine, prompt) if self.stored else None

    def answer(self, engine: Any, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        order = self._order(engine, prompt.documents)
        if self.annotate:
            prompt = _annotated(engine, prompt, order)
        if self.stored:
            return self.answer_in_order(engine, state, prompt, order, limits)
        return Answer(read_plain(engine, prompt, (prompt.documents[i] for i in order), limits), tuple(order))

    def _order(self, engine: Engine, documents: Sequence[Sequence[int]]) -> list[int]:
        """The numbers of the documents in reading order."""
        names = list(map(tuple, documents))
        numbers = [i for i, name in enumerate(names) if not self.deduplicate or names.index(name) == i]
        if not self.reorder:
            return numbers
        root = self._indexes.setdefault(engine, _Context([]))
        place = root.arranged([names[i] for i in numbers]).index
        return sorted(numbers, key=lambda i: place(names[i]))

    @cached_property
    def _indexes(self) -> WeakKeyDictionary[Engine, _Context]:
        """One for each engine, as long as this method and the engine live."""
        return WeakKeyDictionary()


@dataclass(eq=False)
class _Context:
    """A node of the context index: the documents of a prompt, or those that its children's prompts begin with."""

    documents: list[tuple[int, ...]]
    children: list[_Context] = field(default_factory=list)

    def arranged(self, documents: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Order a prompt's documents by the index, whose root this is, and add the prompt to it."""
        parent, node, known = self, self, set(documents)
        while near := [child for child in node.children if known & set(child.documents)]:
            parent, node = node, min(near, key=lambda child: child.distance(documents))
            if node.documents[0] not in known:
                break
        shared = [one for one in node.documents if one in known]
        ordered = shared + [one for one in documents if one not in shared]
        if node is self or (node.children and node.documents[0] in known):
            node.children.append(_Context(ordered))
        else:
            parent.add_beside(node, ordered)
        return ordered

    def add_beside(self, child: _Context, documents: list[tuple[int, ...]]) -> None:
        """Add a prompt next to a child; what both begin with becomes a node above them."""
        pairs = enumerate(zip(child.documents, documents, strict=False))
        common = next((i for i, (one, other) in pairs if one != other), min(len(child.documents), len(documents)))
        if common and child.documents != documents:
            at = self.children.index(child)
            self.children[at] = _Context(documents[:common], [child, _Context(documents)])
        else:
            self.children.append(_Context(documents))

    def distance(self, documents: Sequence[tuple[int, ...]]) -> float:
        """Distance of this node's documents from others, of which it has at least one."""
        places = {one: i for i, one in enumerate(self.documents)}
        gaps = [abs(i - places[one]) for i, one in enumerate(documents) if one in places]
        overlap = len(gaps) / max(len(self.documents), len(documents))
        return 1 - overlap + POSITION_WEIGHT * sum(gaps) / len(gaps)


def _annotated(engine: Engine, prompt: Prompt, order: Sequence[int]) -> Prompt:
    """The prompt with the ranking of its documents before the question; each is named by its place among those read."""
    ranking = " > ".join(str(place + 1) for place in sorted(range(len(order)), key=order.__getitem__))
    line = "\n" * (not prompt.document_end) + ANNOTATION.format(ranking=ranking)
    text = prompt.text and replace(prompt.text, query=line + prompt.text.query)
    return replace(prompt, query=[*token_ids(engine.tokenizer, line), *prompt.query], text=text)
