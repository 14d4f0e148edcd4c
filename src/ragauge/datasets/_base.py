"""What a data set is: where its records come from and how one becomes an Example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Document:
    """A passage as the prompt shows it."""

    title: str
    text: str


@dataclass(frozen=True)
class Example:
    """One question with the documents it is asked over."""

    key: str  # unique in its data set and stable over runs
    question: str
    documents: tuple[Document, ...]
    answers: tuple[str, ...]  # the answer and its aliases
    gold: tuple[int, ...]  # indices into `documents` of those that hold the answer
