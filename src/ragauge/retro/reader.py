"""What generation and scoring ask of a model that reads neighbours; decoders of any kind and engine are behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from ragauge.cost.trace import Call

Tokens = Sequence[int]


class Reader(Protocol):
    """One sequence as it is read: a cache of its tokens and the neighbours that new tokens attend to."""

    length: int  # tokens read

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """Let tokens read from now on attend to these neighbours, and no more to those attached before."""
        ...

    def read(self, ids: Tokens) -> Tensor:
        """Read the next tokens of the sequence; the logits after each: (token, vocab)."""
        ...

    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """Greedy continuation by that many tokens, of which the last is not read yet.

        Args:
            logits: (vocab,) after the last token read.
        """
        ...

    def note(self, call: Call) -> None:
        """Add a call that was made elsewhere (a retrieval) to the trace."""
        ...
