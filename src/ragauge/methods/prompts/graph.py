"""Prompt graphs (Superposition Prompting, section 3.2): segments of tokens, which of them see
which, and positions.

A segment attends to every segment from which a path leads to it, and causally to itself. Naive RAG
is the chain; superposition's fork-join lets parallel paths part after the preamble and meet again
before the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Name = tuple[str, int]
"""A segment's kind and its number, such as ("document", 3)."""

PREAMBLE: Name = ("preamble", 0)
TASK: Name = ("task", 0)


@dataclass(frozen=True)
class Segment:
    """Tokens that always stand together, each at a real-valued position."""

    name: Name
    ids: Sequence[int]
    positions: Sequence[float]
    parents: tuple[Name, ...] = ()


class PromptGraph:
    """A directed acyclic graph of segments. Parents are added before their children, so it has no
    cycles.
    """

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.segments: dict[Name, Segment] = {}
        # the segments that each attends to, in their order
        self.ancestors: dict[Name, tuple[Name, ...]] = {}
        for segment in segments:
            self.add(segment)

    def add(self, segment: Segment) -> None:
        """Add a segment below its parents, which are in the graph."""
        seen = {a for p in segment.parents for a in (*self.ancestors[p], p)}
        self.ancestors[segment.name] = tuple(name for name in self.segments if name in seen)
        self.segments[segment.name] = segment

    def __getitem__(self, name: Name) -> Segment:
        return self.segments[name]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments.values())

    def part(self, names: Iterable[Name]) -> PromptGraph:
        """Return a graph of these segments alone, with those of their parents that are among them."""
        chosen = set(names)
        segments = (s for s in self if s.name in chosen)
        return PromptGraph(
            replace(s, parents=tuple(p for p in s.parents if p in chosen)) for s in segments
        )


def unit_segment(
    name: Name, ids: Sequence[int], start: float, parents: Iterable[Name] = ()
) -> Segment:
    """Make a segment at positions one apart from `start` on."""
    return Segment(name, ids, unit_steps(start, len(ids)), tuple(parents))


def unit_steps(start: float, count: int) -> list[float]:
    """`count` positions from `start` on, one apart."""
    return [start + j for j in range(count)]


Positions = tuple[list[list[float]], float]
"""The positions of each path's tokens, and the length that all paths together take up."""


def equilibrium(lengths: Sequence[int], start: float, mean: float | None = None) -> Positions:
    """Stretch or squeeze each path to the harmonic mean of the paths' lengths, S = n / sum(1 /
    |d_i|), or to another length S = `mean`. Token j of a path of m tokens stands at start + j * S /
    m, whatever m is: paths longer than S have steps below 1, none is cut, and no token reaches
    start + S, where what follows the paths begins.
    """
    mean = mean or len(lengths) / sum(1 / n for n in lengths)
    return [[start + j * mean / n for j in range(n)] for n in lengths], mean


def left_aligned(lengths: Sequence[int], start: float) -> Positions:
    """Every path begins at `start` with unit steps; what follows begins after the longest."""
    return [unit_steps(start, n) for n in lengths], float(max(lengths))


LAYOUTS = {"equilibrium": equilibrium, "left_aligned": left_aligned}
