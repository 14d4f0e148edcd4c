"""ragauge measures the cost and the quality of retrieval-augmented generation.

    import ragauge

    model = ragauge.load_model("smollm2-135m-instruct")
    answer = ragauge.method("superposition", top_k=2).answer(model, "Which river?", ["Graz is a city.", "Vienna ..."])

The names in `__all__` are the library; docs/building-blocks.md lists the other public modules. Nothing is imported
until a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ragauge' has no attribute {name!r}")
    from ragauge import errors

    if hasattr(errors, name):  # UserError, which needs no torch
        return getattr(errors, name)
    from ragauge import library

    return getattr(library, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
