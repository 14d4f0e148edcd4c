"""The kernel of each operation in this process: the fastest as measured here, or torch's own."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import torch

from ragauge.cost.machine import engines_state
from ragauge.engines.kernels.compiled import MOST_ROWS

PLAIN = "plain"  # torch's own
COMPILED = "compiled"  # needs a C compiler
GAIN = 0.95  # the part of torch's own time that another kernel may take at most
Table = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""dtype -> operation -> `kernel`, and `seconds` of each candidate if it was timed."""


class Operation(StrEnum):
    """An operation whose kernel is chosen apart from the others, by its name in a table."""

    ONE_ROW = "product of 1 row"
    FEW_ROWS = "product of 2 to 16 rows"
    MANY_ROWS = "product of more rows"
    ATTENTION = "attention of several queries"
    ROWWISE = "norms, gates and rotations"
    LIKELIHOOD = "log-probability of tokens"
    ONE_TOKEN = "all layers for 1 token"
    FEW_TOKENS = "all layers for 2 to 16 tokens"


@dataclass(frozen=True)
class Choice:
    """The kernels that a process uses; torch's own for what the table does not list."""

    origin: str  # default or measured
    table: Table = field(default_factory=dict)

    @cached_property
    def _kernels(self) -> dict[tuple[torch.dtype, str], str]:
        return {
            (getattr(torch, dtype), operation): row["kernel"]
            for dtype, rows in self.table.items()
            for operation, row in rows.items()
        }

    def kernel(self, dtype: torch.dtype, operation: str) -> str:
        """The name of the kernel."""
        return self._kernels.get((dtype, operation), PLAIN)

    def without(self, kernel: str) -> "Choice":
        """The same choice, with the fastest of the other kernels in place of one."""
        table = {dtype: dict(rows) for dtype, rows in self.table.items()}
        for rows in table.values():
            for operation, row in rows.items():
                if row["kernel"] == kernel:
                    others = {name: s for name, s in row["seconds"].items() if name != kernel}
                    rows[operation] = {**row, "kernel": fastest_kernel(others)}
        return Choice(self.origin, table)

    def named(self) -> dict[str, dict[str, str]]:
        """All kernels but torch's own, as results state them: dtype -> operation -> kernel."""
        chosen: dict[str, dict[str, str]] = {}
        for dtype, rows in sorted(self.table.items()):
            for operation, row in sorted(rows.items()):
                if row["kernel"] != PLAIN:
                    chosen.setdefault(dtype, {})[operation] = row["kernel"]
        return chosen

    def digest(self, dtype: torch.dtype) -> str:
        """A hash of the choice for a data type: equal choices give equal numbers, bit for bit."""
        named = self.named()
        chosen = [named.get(dtype_name(key)) for key in (dtype, torch.int8)]
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


DEFAULT = Choice("default")
_active = DEFAULT


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a data type without `torch.`."""
    return str(dtype).removeprefix("torch.")


def fastest_kernel(seconds: Mapping[str, float]) -> str:
    """The fastest kernel, if it is clearly faster than torch's own."""
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < GAIN * seconds[PLAIN] else PLAIN


def use(choice: Choice) -> None:
    """Use these kernels from now on, in the whole process, and state them in its provenance."""
    global _active
    _active = choice
    engines_state["kernels"] = {"origin": choice.origin, **choice.named()}


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Use these kernels inside the block, without stating them in the provenance."""
    global _active
    before = _active
    _active = choice
    try:
        yield
    finally:
        _active = before


def active() -> Choice:
    """The choice of this process."""
    return _active


def product_kernel(dtype: torch.dtype, rows: int) -> str:
    """The kernel of products with matrices of a type on a CPU."""
    few = Operation.ONE_ROW if rows == 1 else Operation.FEW_ROWS
    return _active.kernel(dtype, few if rows <= MOST_ROWS else Operation.MANY_ROWS)


def runs_fused(dtype: torch.dtype, tokens: int) -> bool:
    """Whether so many tokens pass all layers, with matrices of a type, in one compiled call.

    Blocks of a GGUF file (uint8) always do: no operator of torch multiplies with them.
    """
    operation = Operation.ONE_TOKEN if tokens == 1 else Operation.FEW_TOKENS
    return tokens <= MOST_ROWS and (
        dtype == torch.uint8 or _active.kernel(dtype, operation) == COMPILED
    )
