"""RAGCache's knowledge tree (Jin et al., 2024, arXiv 2404.12457), with CacheWeaver's order (arXiv
2606.19667).
"""

from dataclasses import dataclass

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.tree import DocumentTree, TreeMethod
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class PrefixTree(TreeMethod):
    """A store of documents after the documents before them, filled by the questions of a run;
    answers are `naive`'s.

    Section 5 of the paper; no released code was found. A node is a document behind all that stand
    before it in a prompt, so what is found is what would be computed; the rest is read online and
    stored. When the store is full, leaves go: those of least priority = clock + frequency x cost /
    size, where the clock is the priority of what went last (`pgdsf`), or those not used for longest
    (`lru`). The paper profiles the cost in seconds; here it is the engine's count of
    multiply-accumulates. Its speculative reading and its two levels of memory are left out. The hit
    rate depends on the order of the questions. With `stored` = false the order alone remains, as if
    the store were never full, for an engine whose own prefix cache does the rest.
    """

    # put the documents first that make the longest stored prefix (CacheWeaver)
    reorder: bool = False

    def arranged(
        self, engine: SpanEngine, tree: DocumentTree, prompt: Prompt
    ) -> tuple[list[int], Prompt]:
        root = tree.roots[tuple(prompt.preamble)]
        order = tree.longest(root, dict(enumerate(prompt.documents)))[1] if self.reorder else []
        order += [i for i in range(len(prompt.documents)) if i not in order]
        return order, prompt
