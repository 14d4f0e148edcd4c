"""ragauge measures the cost and the quality of retrieval-augmented generation.

    import ragauge

    model = ragauge.load_model("smollm2-135m-instruct")
    documents = ["Graz is a city.", "Vienna lies on the Danube."]
    answer = ragauge.method("superposition", top_k=2).answer(model, "Which river?", documents)

The names in `__all__` are the library; docs/plugins.md lists the other public modules.
Nothing is imported until a name is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ragauge._version import __version__ as __version__

if TYPE_CHECKING:
    from ragauge.errors import UserError
    from ragauge.library.evaluation import evaluate
    from ragauge.library.methods import Answer, Method, method
    from ragauge.library.models import Model, load_model
    from ragauge.library.pipelines import Pipeline
    from ragauge.library.questions import Dataset, Question, load_dataset
    from ragauge.library.results import Results

_HOMES = {
    "errors": ("UserError",),
    "library.evaluation": ("evaluate",),
    "library.methods": ("Answer", "Method", "method"),
    "library.models": ("Model", "load_model"),
    "library.pipelines": ("Pipeline",),
    "library.questions": ("Dataset", "Question", "load_dataset"),
    "library.results": ("Results",),
}

__all__ = [
    "Answer",
    "Dataset",
    "Method",
    "Model",
    "Pipeline",
    "Question",
    "Results",
    "UserError",
    "evaluate",
    "load_dataset",
    "load_model",
    "method",
]


def __getattr__(name: str) -> Any:
    """Import a name of the library, and torch with it, when it is first used."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"ragauge.{home}"), name)
    raise AttributeError(f"module 'ragauge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
