"""ragauge measures the cost and the quality of retrieval-augmented generation.

    import ragauge

    model = ragauge.load_model("smollm2-135m-instruct")
    answer = ragauge.method("superposition", top_k=2).answer(model, "Which river?", ["Graz is a city.", "Vienna ..."])

The names in `__all__` are the library; docs/building-blocks.md lists the other public modules. Nothing is imported
until a name is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ragauge._version import __version__ as __version__

if TYPE_CHECKING:
    from ragauge.errors import UserError
    from ragauge.library.evaluation import evaluate
    from ragauge.library.methods import Answer, Method, method
    from ragauge.library.models import Model, load_model
    from ragauge.library.questions import Dataset, Question, load_dataset
    from ragauge.library.results import Results

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
    home = importlib.import_module("ragauge.errors" if name == "UserError" else "ragauge.library")  # which needs torch
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
