"""How joint attention places neighbours; importing it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ragauge.errors import UserError


@dataclass(frozen=True)
class Placement:
    """Where neighbours stand before a window, and how much they weigh; see `retrofit/joint.py`."""

    reach: int | None = None  # most tokens between a neighbour's end and its window; None: no bound
    sink: bool = True  # neighbours are read behind the sequence's first token
    bias: float = 0.0  # added to the attention scores of neighbours' keys, in nats

    def __post_init__(self) -> None:
        if self.reach is not None and self.reach < 0:
            raise UserError(f"reach: must be a number of tokens, not {self.reach}")
