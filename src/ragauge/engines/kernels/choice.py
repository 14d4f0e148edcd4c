"""A choice of kernels: which one computes what, by data type and by class of its size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


class Classes:
    """What is chosen separately, by its name in a table."""

    ONE, FEW, MANY = "product of 1 row", "product of 2 to 16 rows", "product of more rows"
    QUERY, QUERIES = "attention of 1 query", "attention of more queries"
    LIKELIHOOD = "log-probability of tokens"
    STEP, STEPS = "all layers for 1 token", "all layers for 2 to 16 tokens"

    @classmethod
    def product(cls, rows: int) -> str:
        return cls.ONE if rows == 1 else cls.FEW if rows <= 16 else cls.MANY

    @classmethod
    def attention(cls, queries: int) -> str:
        return cls.QUERY if queries == 1 else cls.QUERIES

    @classmethod
    def passing(cls, tokens: int) -> str:
        return cls.STEP if tokens == 1 else cls.STEPS


ALL = tuple(value for name, value in vars(Classes).items() if name.isupper())
Table = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""dtype -> class -> `kernel`, and `seconds` of each candidate."""


@dataclass(frozen=True)
class Choice:
    """The kernels that a process uses; what a table does not name is torch's own."""

    origin: str  # default, measured, or a file
    table: Table = field(default_factory=dict)
    _names: dict[tuple[torch.dtype, str], str] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for dtype, classes in self.table.items():
            self._names.update({(getattr(torch, dtype), name): row["kernel"] for name, row in classes.items()})

    def of(self, dtype: torch.dtype, what: str) -> str:
        """The kernel's name."""
        return self._names.get((dtype, what), "plain")

    def named(self, dtype: torch.dtype | None = None) -> dict[str, Any]:
        """What is not torch's own, as results state it: dtype -> class -> kernel."""
        chosen: dict[str, Any] = {}
        for (of, what), name in sorted(self._names.items(), key=str):
            if name != "plain" and dtype in (None, of):
                chosen.setdefault(str(of).removeprefix("torch."), {})[what] = name
        return chosen

    def digest(self, dtype: torch.dtype) -> str:
        """A name of the choice for a data type: numbers of equal choices are equal bit for bit."""
        chosen = {**self.named(dtype), **self.named(torch.int8)}
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


DEFAULT = Choice("default")
