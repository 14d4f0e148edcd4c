"""ragauge: what retrieval-augmented generation costs and what it is worth.

    import ragauge

    model = ragauge.load_model("smollm2-135m-instruct")
    answer = ragauge.method("superposition", top_k=2).answer(model, "Which river?", ["Graz is a city.", "Vienna ..."])

The names in `__all__` are the library; everything else is private. Nothing is imported until a name is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from ragauge.lazy import exported

if TYPE_CHECKING:
    from ragauge.errors import UserError
    from ragauge.library import (
        Answer,
        Dataset,
        Method,
        Model,
        Question,
        Results,
        evaluate,
        load_dataset,
        load_model,
        method,
    )

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "Dataset",
    "Method",
    "Model",
    "Question",
    "Results",
    "UserError",
    "evaluate",
    "load_dataset",
    "load_model",
    "method",
]


def _modules() -> Iterator[ModuleType]:
    from ragauge import errors

    yield errors
    from ragauge import library

    yield library


__getattr__ = exported(__all__, _modules)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
