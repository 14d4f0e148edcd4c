"""Greedy generation with retrieval: at the start of every window its neighbours, then plain decoding to the next."""

from __future__ import annotations

from ragauge.errors import UserError
from ragauge.generation.reader import Reader, Tokens
from ragauge.generation.scoring import attach, read_through
from ragauge.generation.sources import NeighbourSource
from ragauge.generation.windows import Windows


def generate(reader: Reader, prompt: Tokens, tokens: int, source: NeighbourSource, windows: Windows) -> list[int]:
    """The prompt continued greedily until the sequence has `tokens` tokens; returns the new ones.

    Raises:
        UserError: the prompt is empty or leaves nothing to generate; the retriever failed.
    """
    if not 0 < len(prompt) < tokens:
        raise UserError(f"a prompt of {len(prompt)} tokens cannot be continued to {tokens}")
    ids = list(prompt)
    for _ in read_through(reader, ids, len(ids) - 1, source, windows, end=tokens - 1):
        pass
    while len(ids) < tokens:  # the last token is not read yet
        window = windows.of(len(ids) - 1)
        following = windows.first(window + 1)
        if window >= 0 and len(ids) - 1 == windows.first(window):
            attach(reader, source, window, ids, more=following < tokens - 1)
        logits = reader.read(ids[-1:])[-1]
        ids += reader.decode(logits, min(tokens, following + 1) - len(ids))
    return ids[len(prompt) :]
