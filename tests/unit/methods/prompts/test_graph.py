"""Prompt graphs: a segment sees what a path leads from, and nothing else."""

import random
from fractions import Fraction

import numpy as np
import pytest

from ragauge.methods.prompts import (
    LAYOUTS,
    PREAMBLE,
    TASK,
    PromptGraph,
    Segment,
    corpus_spacing,
    unit_steps,
)
from tiny_models import tiny_prompt


def fork_join():
    """preamble -> document i -> query i -> task, of three documents."""
    graph = PromptGraph([Segment(PREAMBLE, [1, 2], unit_steps(0, 2))])
    for i in range(3):
        graph.add(Segment(("document", i), [3] * (i + 1), unit_steps(2, i + 1), (PREAMBLE,)))
        graph.add(Segment(("query", i), [4, 5], unit_steps(9, 2), (("document", i),)))
    graph.add(Segment(TASK, [6], [11], tuple(("query", i) for i in range(3))))
    return graph


def random_graph(seed):
    """Segments of random lengths below random earlier ones."""
    draw = random.Random(seed)
    graph = PromptGraph()
    for number in range(9):
        earlier = [("segment", i) for i in range(number)]
        parents = tuple(draw.sample(earlier, k=draw.randint(0, min(3, number))))
        count = draw.randint(1, 4)
        graph.add(Segment(("segment", number), [7] * count, unit_steps(0, count), parents))
    return graph


def closure(graph):
    """Which segment is reached from which along edges, (to, from) bool: powers of the adjacency
    matrix.
    """
    names = [segment.name for segment in graph]
    edges = np.array([[b in graph[a].parents for b in names] for a in names], dtype=int)
    reached = edges.copy()
    for _ in names:
        reached = ((reached + reached @ edges) > 0).astype(int)
    return reached.astype(bool)


@pytest.mark.parametrize("graph", [fork_join(), *map(random_graph, range(12))])
def test_ancestors_are_what_paths_lead_from(graph):
    names = [segment.name for segment in graph]
    reached = closure(graph)
    for row, name in enumerate(names):
        assert graph.ancestors[name] == tuple(
            n for n, yes in zip(names, reached[row], strict=True) if yes
        )


def test_a_part_keeps_the_edges_among_its_segments():
    part = fork_join().part([PREAMBLE, ("document", 1), ("query", 1)])
    assert [s.name for s in part] == [PREAMBLE, ("document", 1), ("query", 1)]
    assert part.ancestors["query", 1] == (PREAMBLE, ("document", 1))


# ---- positions of parallel paths, by hand and by the formula of section 3.2


@pytest.mark.parametrize("lengths", [[1], [2, 6], [5, 5, 5], [3, 7, 20], [137] * 20, [1, 400]])
def test_equilibrium_is_the_harmonic_mean(lengths):
    """Of paths of 2 and 6 tokens: S = 2 / (1/2 + 1/6) = 3; steps of 1.5 and 0.5."""
    mean = Fraction(len(lengths)) / sum(Fraction(1, n) for n in lengths)
    positions, length = LAYOUTS["equilibrium"](lengths, 39)
    assert length == pytest.approx(float(mean), rel=1e-12)
    for n, path in zip(lengths, positions, strict=True):
        assert path == pytest.approx([float(39 + j * mean / n) for j in range(n)])
        assert path[-1] < 39 + length  # what follows comes after every token


@pytest.mark.parametrize("seed", range(4))
def test_the_spacing_of_a_corpus_counts_each_document_once(seed):
    draw = random.Random(seed)
    prompts = [tiny_prompt([draw.randint(1, 300) for _ in range(5)], seed=i) for i in range(4)]
    lengths = [len(ids) for prompt in prompts for ids in prompt.documents]
    mean = float(Fraction(len(lengths)) / sum(Fraction(1, n) for n in lengths))
    assert corpus_spacing(prompts) == pytest.approx(mean, rel=1e-12)
    assert corpus_spacing([*prompts, *prompts[:2]]) == corpus_spacing(reversed(prompts))
    assert corpus_spacing([tiny_prompt([7])]) == 7
