"""ContextPilot (Jiang et al., MLSys 2026, arXiv 2511.03475): documents in the order whose prefixes
are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ragauge.engines.protocol import Capabilities, Capability, SpanEngine
from ragauge.methods.base.tree import DocumentTree, Policy, TreeMethod
from ragauge.methods.prompts import Prompt
from ragauge.methods.prompts.templates import token_ids

POSITION_WEIGHT = 0.001  # alpha, of the distance between two contexts
ANNOTATION = (
    "Read the documents in this importance ranking: {ranking}\n"
    "Prioritize information from higher-ranked documents.\n"
)


@dataclass(frozen=True)
class ContextPilot(TreeMethod):
    """An index of the prompts so far decides the order of a question's documents; repeated ones are
    left out.

    The paper's order as the released code has it for one request after another
    (EfficientContext/ContextPilot, `server/live_index.py`). The index is a tree of document lists,
    down which a question goes by the least distance, 1 - shared / longer list + 0.001 x mean
    difference of places; documents shared with the node where it arrives come first, in that node's
    order, the others follow. Keys and values come from `prefix_tree`'s store or, with `stored` =
    false, from an engine's own prefix cache. The paper ranks documents in the prompt, too:
    `annotate`, off by default, so that answers are `naive`'s in the order read. Left out:
    scheduling, evictions that an engine reports, references to earlier turns and to equal lines.
    """

    reorder: bool = True  # order documents by the index; else as given
    deduplicate: bool = True  # read a document that a prompt has twice once, where it first stands
    annotate: bool = False  # write the order given, as a ranking, before the question

    def required(self) -> Capabilities:
        return super().required() | ({Capability.TEXT} if self.annotate else frozenset())

    def new_tree(self) -> _IndexedTree:
        return _IndexedTree(self.policy, self.store_gb * 1e9)

    def arranged(
        self, engine: SpanEngine, tree: DocumentTree, prompt: Prompt
    ) -> tuple[list[int], Prompt]:
        assert isinstance(tree, _IndexedTree)
        names = list(map(tuple, prompt.documents))
        order = [
            i for i, name in enumerate(names) if not self.deduplicate or names.index(name) == i
        ]
        if self.reorder:
            ranks = tree.index.arranged([names[i] for i in order])
            order.sort(key=lambda i: ranks.index(names[i]))
        if self.annotate:
            prompt = annotated(engine.tokenizer, prompt, order)
        return order, prompt


class _IndexedTree(DocumentTree):
    """A tree of documents with the index of the prompts so far."""

    def __init__(self, policy: Policy, max_bytes: float) -> None:
        super().__init__(policy, max_bytes)
        self.index = _Context([])


@dataclass(eq=False)
class _Context:
    """A node of the index: the documents of a prompt, or those that its children's prompts begin
    with.
    """

    documents: list[tuple[int, ...]]
    children: list[_Context] = field(default_factory=list)

    def arranged(self, documents: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Order a prompt's documents by the index, whose root this is, and add the prompt to it."""
        parent = self
        node = self
        known = set(documents)
        near = node.sharing(known)
        while near:
            parent = node
            node = min(near, key=lambda child: child.distance(documents))
            near = node.sharing(known) if node.documents[0] in known else []
        shared = [document for document in node.documents if document in known]
        new = _Context(shared + [document for document in documents if document not in shared])
        common = len(list(takewhile(known.__contains__, node.documents)))
        if node is self or (node.children and common):
            node.children.append(new)
        elif common and node.documents != new.documents:
            # a node for the documents that the two begin with, above them
            above = _Context(new.documents[:common], [node, new])
            parent.children[parent.children.index(node)] = above
        else:
            parent.children.append(new)
        return new.documents

    def sharing(self, documents: set[tuple[int, ...]]) -> list[_Context]:
        """Return the children that have one of these documents."""
        return [child for child in self.children if documents & set(child.documents)]

    def distance(self, documents: Sequence[tuple[int, ...]]) -> float:
        """Distance of this node's documents from others, of which it has at least one."""
        ranks = {document: i for i, document in enumerate(self.documents)}
        gaps = [abs(i - ranks[name]) for i, name in enumerate(documents) if name in ranks]
        overlap = len(gaps) / max(len(self.documents), len(documents))
        return 1 - overlap + POSITION_WEIGHT * sum(gaps) / len(gaps)


def annotated(tokenizer: Any, prompt: Prompt, order: Sequence[int]) -> Prompt:
    """Return the prompt with a ranking of its documents, by their places in this order, before the
    question.
    """
    by_rank = sorted(range(len(order)), key=order.__getitem__)
    ranking = " > ".join(str(number + 1) for number in by_rank)
    line = "\n" * (not prompt.document_end) + ANNOTATION.format(ranking=ranking)
    text = prompt.text and replace(prompt.text, query=line + prompt.text.query)
    return replace(prompt, query=[*token_ids(tokenizer, line), *prompt.query], text=text)
