"""Prompt graphs by brute force: the oracle of what the engines and methods do faster."""

import numpy as np

from ragauge.methods.prompts import Name, PromptGraph, unit_segment


def generations(graph):
    """Segments by depth: those of one generation do not see each other and can be read in one call."""
    depth = {}
    for segment in graph:
        depth[segment.name] = 1 + max((depth[p] for p in segment.parents), default=-1)
    return [[n for n in depth if depth[n] == d] for d in sorted(set(depth.values()))]


def mask(graph):
    """Which token sees which: (token, token) bool over all segments in order."""
    owner = [segment.name for segment in graph for _ in segment.ids]
    tokens = len(owner)
    mask = np.zeros((tokens, tokens), dtype=bool)
    for query in range(tokens):
        for key in range(tokens):
            same = owner[query] == owner[key] and key <= query
            mask[query, key] = same or owner[key] in graph.ancestors[owner[query]]
    return mask


def chain(segments):
    """The naive prompt: each segment after the one before it, integer positions from 0."""
    graph = PromptGraph()
    at = 0
    parents = tuple[Name, ...]()
    for name, ids in segments:
        graph.add(unit_segment(name, ids, at, parents))
        at = at + len(ids)
        parents = (name,)
    return graph
