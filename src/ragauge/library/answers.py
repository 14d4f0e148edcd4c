"""An answer with its sources and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ragauge.cost.cycles import compute_cycles
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.datasets import Document
from ragauge.io.records import Record


@dataclass(frozen=True)
class Answer:
    """A method's answer to one question. Multiply-accumulates are None where the model's shape is not known."""

    text: str  # everything that was generated
    prediction: str  # the answer: the text before the first newline
    kept: tuple[int, ...]  # the documents that it was generated from, in reading order: their places among those given
    documents: tuple[Document, ...]  # these documents
    saliency: tuple[float | None, ...]  # one score a given document, where the method scores any
    evidence: tuple[str, ...] | None  # what it was generated from; None: the method looks for none
    tokens: Mapping[str, Any]  # token counts: preamble, documents (one each), query, task, generated
    macs: int | None  # multiply-accumulates of everything, what was prepared before the question included
    cycles: int | None  # those that the user waits for, of parallel paths the longest
    online_s: float | None  # seconds of the calls that the user waits for
    first_token_s: float | None  # seconds from the question to the first token
    offline_s: float | None  # seconds of the calls before the question
    cache_bytes: int | None  # of cached keys and values at their peak
    trace: tuple[Call, ...] = field(repr=False, default=())  # every call of the model

    def __str__(self) -> str:
        return self.prediction

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        costs = {name: value for name, value in self._costs().items() if value}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in costs.items())
        return f"<p>{escape(self.prediction)}</p><table>{rows}</table>"

    def _costs(self) -> dict[str, str]:
        return {
            "documents used": ", ".join(document.title for document in self.documents),
            "compute cycles (MACs)": "" if self.cycles is None else f"{self.cycles:.3g}",
            "MACs in all": "" if self.macs is None else f"{self.macs:.3g}",
            "seconds": "" if self.online_s is None else f"{self.online_s:.3f}",
            "seconds to the first token": "" if self.first_token_s is None else f"{self.first_token_s:.3f}",
            "seconds before the question": "" if self.offline_s is None else f"{self.offline_s:.3f}",
        }


def of_record(record: Record, documents: Sequence[Document], shape: Shape | None) -> Answer:
    """The answer of a record that did not fail."""
    trace = tuple(Call.from_json(call) for call in record.trace)
    counted = shape if trace else None  # a trace can be empty, of a server
    return Answer(
        text=record.text,
        prediction=record.prediction,
        kept=tuple(record.kept),
        documents=tuple(documents[at] for at in record.kept),
        saliency=tuple(record.saliency),
        evidence=None if record.evidence is None else tuple(piece.text for piece in record.evidence),
        tokens=record.tokens,
        macs=compute_cycles(trace, counted, "total") if counted else None,
        cycles=compute_cycles(trace, counted) if counted else None,
        online_s=record.online_s,
        first_token_s=record.first_token_s,
        offline_s=record.offline_s,
        cache_bytes=record.cache_bytes,
        trace=trace,
    )
