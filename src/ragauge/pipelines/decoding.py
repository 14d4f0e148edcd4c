"""Scoring and greedy generation of a sequence, window by window, by the same reads."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ragauge.engines.kernels import operations
from ragauge.pipelines.reader import Prepared, SequenceReader, Tokens
from ragauge.pipelines.sources import NeighbourSource
from ragauge.pipelines.windows import Windows


def token_nll(
    reader: SequenceReader, ids: Tokens, source: NeighbourSource, windows: Windows
) -> Tensor:
    """Negative log-likelihood, in nats, of every token but the first: (token - 1,), fp32 on the
    CPU.
    """
    parts = [
        -operations.log_probabilities(
            logits, torch.tensor(ids[start + 1 : stop + 1], device=logits.device)
        )
        for start, stop, logits in read_through(reader, ids, len(ids) - 1, source, windows)
    ]
    return torch.cat(parts).cpu()


def generate(
    reader: SequenceReader, prompt: Tokens, tokens: int, source: NeighbourSource, windows: Windows
) -> list[int]:
    """Continue a prompt greedily to `tokens` tokens; returns the new ones.

    Raises:
        UserError: the retriever failed.
    """
    ids = list(prompt)
    for _ in read_through(reader, ids, len(ids) - 1, source, windows, end=tokens - 1):
        pass
    while len(ids) < tokens:  # the last token is not read yet
        [(_, _, logits)] = read_through(reader, ids, len(ids), source, windows, end=tokens - 1)
        following = windows.first(windows.window_at(len(ids) - 1) + 1)
        ids += reader.decode(logits[-1], min(tokens, following + 1) - len(ids))
    return ids[len(prompt) :]


def read_through(
    reader: SequenceReader,
    ids: Tokens,
    stop: int,
    source: NeighbourSource,
    windows: Windows,
    end: int | None = None,
) -> Iterator[tuple[int, int, Tensor]]:
    """Read the tokens up to `stop`, each window with its own neighbours: (start, stop, logits
    (token, vocab)). The source sees no later tokens than a window's first. `end`: where later reads
    will stop, if beyond `stop`.
    """
    end = stop if end is None else end
    for first, last, window in windows.pieces(reader.length, stop):
        if window >= 0 and first == windows.first(window):
            neighbours = source.neighbours(
                window, ids[: first + 1], windows.first(window + 1) < end
            )
            if isinstance(neighbours, Prepared):
                neighbours.put()
            elif neighbours is not None:  # else those of the window before stay
                reader.attach(neighbours)
        yield first, last, reader.read(ids[first:last])
