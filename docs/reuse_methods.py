"""Draw docs/reuse_methods.svg: which token attends to which, when it is read, and where it stands.

Run without arguments to write the file again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

TARGET = Path(__file__).with_suffix(".svg")
SEGMENTS = {"P": 3, "A": 4, "B": 3, "C": 5, "Q": 3}  # tokens of preamble, documents and question
DOCUMENTS = "ABC"
COLOURS = {
    "offline": ("#9ecae1", "offline, before the question is known"),
    "online": ("#fd8d3c", "online, once"),
    "again": ("#cb181d", "stored, and recomputed online"),
    "twice": ("#fcbba1", "stored, and recomputed in two layers alone"),
    "weighed": ("#9e9ac8", "online, with a temperature and a scale"),
}
CELL = 6
COLUMNS = 5
WIDTH = 190
HEIGHT = 232
TOP = 84


@dataclass(frozen=True)
class Token:
    """One token: its segment and number, where it stands, when it is read, and on which path."""

    segment: str
    number: int
    position: float
    when: str = "online"
    path: str = ""

    @property
    def name(self) -> str:
        return f"{self.segment}{self.number}"

    @property
    def colour(self) -> str:
        return COLOURS[self.when][0]


Sees = Callable[[Token, Token], bool]
"""(token, earlier token or itself) -> whether it attends to it."""


@dataclass(frozen=True)
class Panel:
    name: str
    note: str
    tokens: list[Token]
    sees: Sees
    weighed: bool = False


def tokens(
    when: dict[str, str] | None = None, *, together: bool = False, order: str = "PABCQ"
) -> list[Token]:
    """All segments' tokens, one after another, or the documents at one place."""
    found = []
    at = 0.0
    for segment in order:
        found += [
            Token(segment, n, at + n, (when or {}).get(segment, "online"))
            for n in range(SEGMENTS[segment])
        ]
        at += 0 if together and segment in DOCUMENTS else SEGMENTS[segment]
        if together and segment == order[-2]:
            at += max(SEGMENTS[d] for d in DOCUMENTS)
    return found


STORED = dict.fromkeys("PABC", "offline")


def causal(token: Token, earlier: Token) -> bool:
    return True


def apart(first: int = 0) -> Sees:
    """Documents see themselves and the first tokens of the preamble; what is recomputed and the
    question see all.
    """

    def sees(token: Token, earlier: Token) -> bool:
        alone = token.segment in DOCUMENTS and token.when == "offline"
        return (
            not alone
            or earlier.segment == token.segment
            or (earlier.segment == "P" and earlier.number < first)
        )

    return sees


def again(chosen: str, others: str = "offline") -> list[Token]:
    """Stored documents in their places, some tokens of which are recomputed."""
    return [
        replace(token, when="again" if token.name in chosen.split() else others)
        if token.segment in DOCUMENTS
        else token
        for token in tokens(STORED)
    ]


def paths(task: bool) -> list[Token]:
    """Documents at one place, each with a copy of the question, and what follows the question once."""
    found = [t for t in tokens(STORED, together=True) if t.segment != "Q"]
    mean = 0.0
    if task:  # every path is stretched to the harmonic mean of their lengths
        mean = 3 / sum(1 / SEGMENTS[d] for d in DOCUMENTS)
        stretch = {d: mean / SEGMENTS[d] for d in DOCUMENTS}
        found = [
            replace(t, position=3 + (t.position - 3) * stretch.get(t.segment, 1)) for t in found
        ]
    for document in DOCUMENTS:
        start = 3 + (mean if task else SEGMENTS[document])
        found += [Token("Q", n, start + n, path=document) for n in range(2 if task else 3)]
    return found + ([Token("T", n, 3 + mean + 2 + n) for n in range(2)] if task else [])


def path_sees(token: Token, earlier: Token) -> bool:
    if token.segment == "T":
        return "B" in (earlier.path, earlier.segment) or earlier.segment in "PT"
    own = (token.segment, token.path)
    return earlier.segment in ("P", token.path) or (earlier.segment, earlier.path) == own


def without_dropped(token: Token, earlier: Token) -> bool:
    """The question does not see what was dropped before it."""
    is_gone = earlier.name in DROPPED and token.segment == "Q"
    return not is_gone and apart()(token, earlier)


SPREAD = "A0 A3 B1 C0 C2 C4"
DROPPED = ("A1", "A2", "B0", "C1", "C3")
LEFT = [token for token in tokens() if token.name not in DROPPED]
SHORT = [replace(token, position=place) for place, token in enumerate(LEFT)]

PANELS = [
    Panel("naive", "all read online", tokens(), causal),
    Panel("prompt_cache", "alone, all at one place", tokens(STORED, together=True), apart()),
    Panel("parallel_windows", "behind the first token", tokens(STORED, together=True), apart(1)),
    Panel(
        "ape", "behind the preamble; weighed", tokens(STORED, together=True), apart(3), weighed=True
    ),
    Panel("naive_reuse", "alone, moved to their places", tokens(STORED), apart()),
    Panel("epic", "first tokens recomputed", again("A0 B0 C0"), apart()),
    Panel("cache_blend", "what changed is recomputed", again(SPREAD, "twice"), apart()),
    Panel("prophet_kv", "what Q attends to, again", again(SPREAD), apart()),
    Panel("cache_clip", "windows of tokens, again", again("A2 A3 B0 C1 C2 C3"), apart(3)),
    Panel(
        "prefix_scale_recompute",
        "what changed again; Q weighed",
        again(SPREAD, "twice"),
        apart(),
        weighed=True,
    ),
    Panel("parallel_experts", "a stream for each document", paths(task=False), path_sees),
    Panel("superposition", "paths; the best is kept (B)", paths(task=True), path_sees),
    Panel("compressed", "around naive_reuse", tokens(STORED), without_dropped),
    Panel(
        "prefix_tree",
        "P, A, B are found as stored",
        tokens(dict.fromkeys("PAB", "offline")),
        causal,
    ),
    Panel(
        "context_pilot",
        "in the order that is stored",
        tokens(dict.fromkeys("PBA", "offline"), order="PBACQ"),
        causal,
    ),
    Panel("long_llmlingua", "tokens left out of the text", SHORT, causal),
]


def drawn() -> str:
    """The whole figure as SVG."""
    rows = -(-len(PANELS) // COLUMNS)
    width = COLUMNS * WIDTH + 10
    height = rows * HEIGHT + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="DejaVu Sans, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for number, panel in enumerate(PANELS):
        x = number % COLUMNS * WIDTH + 28
        y = number // COLUMNS * HEIGHT + TOP
        parts += [f'<g transform="translate({x},{y})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    text = (
        "A row is a token that is read, a column a key that it attends to: P preamble, A B C documents, Q question, "
        "T task. Below: where each stands."
    )
    yield f'<text x="10" y="18">{text}</text>'
    for number, (colour, words) in enumerate(COLOURS.values()):
        x = 10 + number % 3 * 280
        y = 30 + number // 3 * 18
        yield f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 15}" y="{y + 9}">{words}</text>'


def _panel(panel: Panel) -> Iterator[str]:
    size = len(panel.tokens) * CELL
    yield f'<text y="-2" font-weight="bold">{panel.name}</text>'
    yield f'<text y="10" fill="#555" font-size="10">{panel.note}</text>'
    yield '<g transform="translate(0,16)">'
    yield f'<rect width="{size}" height="{size}" fill="#f7f7f7" stroke="#ccc" stroke-width="0.5"/>'
    for row, token in enumerate(panel.tokens):
        seen = [_colour(panel, token, key) for key in panel.tokens[: row + 1]]
        for colour, run in groupby(range(row + 1), key=seen.__getitem__):
            columns = list(run)
            if colour:
                place = (
                    f'x="{columns[0] * CELL}" y="{row * CELL}" width="{len(columns) * CELL - 0.5}"'
                )
                yield f'<rect {place} height="{CELL - 0.5}" fill="{colour}"/>'
    yield from _names(panel, size + 12)
    yield "</g>"


def _colour(panel: Panel, token: Token, key: Token) -> str | None:
    """The colour of a token's attention to a key; None where there is none."""
    if not panel.sees(token, key):
        return None
    is_weighed = panel.weighed and token.segment == "Q" and key.segment in DOCUMENTS
    return COLOURS["weighed"][0] if is_weighed else token.colour


def _names(panel: Panel, top: float) -> Iterator[str]:
    """The segments' names left of their rows; below, their positions as bars, one line a segment."""
    rows: dict[str, list[int]] = {}
    for row, token in enumerate(panel.tokens):
        rows.setdefault(token.segment + token.path.lower(), []).append(row)
    for name, run in rows.items():
        y = (run[0] + run[-1] + 1) / 2 * CELL + 4
        yield f'<text x="-4" y="{y:g}" text-anchor="end" font-size="9">{name}</text>'
    for line, (name, run) in enumerate(rows.items()):
        y = top + line * 6
        for token in [panel.tokens[row] for row in run]:
            place = f'x="{token.position * CELL:g}" y="{y:g}" width="{CELL - 0.5}"'
            yield f'<rect {place} height="4" fill="{token.colour}"/>'
        colour = panel.tokens[run[0]].colour
        label = f'x="-4" y="{y + 5:g}" text-anchor="end" font-size="6" fill="{colour}"'
        yield f"<text {label}>{name}</text>"


if __name__ == "__main__":
    TARGET.write_text(drawn(), encoding="utf-8")
