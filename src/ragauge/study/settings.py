"""The options of a study: documents, questions, a model, how passages are retrieved, a budget."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragauge.config import reading
from ragauge.config.checks import check_source
from ragauge.config.model import SERVED, ModelEntry
from ragauge.config.sources import check_served
from ragauge.cost.hardware import AUTO, Device, device_here
from ragauge.errors import UserError, unknown

# how passages are retrieved; fused: both, by the sum of reciprocal ranks
RETRIEVALS = ("bm25", "dense", "fused")
# documents and questions that `ragauge init --example` writes
EXAMPLE = Path(__file__).parent / "example"
ENDPOINT = "endpoint"  # in place of a model: the one that environment variables name
WRITER = "RAGAUGE_WRITER"  # begins the variables of the endpoint that writes questions
JUDGE = "RAGAUGE_JUDGE"
# option -> the kind of its asset, and the sources that are not here
SOURCES = {
    "encoder": ("encoder", f"{SERVED}."),
    "reranker": ("cross-encoder", f"{SERVED}."),
    "model": ("model", SERVED),
    "writer": ("model", f"{ENDPOINT}$"),
    "judge": ("model", f"{ENDPOINT}$"),
}
TOKENIZER = "smollm2-135m-instruct"  # cuts the passages for a model behind a server


@dataclass(frozen=True)
class StudySettings:
    """The options of `ragauge study`, under the names of the command line."""

    documents: Path
    model: str
    out: Path
    questions: Path | None = None
    generate_questions: int | None = None
    top: int = 10
    passage_tokens: int = 128
    overlap_tokens: int = 32
    retrieval: str = "bm25"
    encoder: str = "minilm"
    reranker: str | None = None
    retrieved: Path | None = None
    drop_near_duplicates: bool = False
    writer: str | None = None
    attempts: int | None = None
    judge: str | None = None
    seed: int = 0
    target_first_token: float | None = None
    device: Device = "cpu"
    tokenizer: str | None = None
    budget: float | None = None  # seconds
    no_run: bool = False

    @property
    def is_served(self) -> bool:
        return self.model.startswith(SERVED)

    @property
    def cores(self) -> int | None:
        """The cores of the run: jobs side by side would wait for one server; None: all."""
        return 1 if self.is_served else None

    @property
    def entry(self) -> ModelEntry:
        """The model as an entry of the configuration."""
        device = {} if self.is_served else {"device": self.device}
        return reading.checked(ModelEntry, {"source": self.model, **device}, "--model")

    @property
    def passage_tokenizer(self) -> str:
        """The source of the tokenizer that counts the tokens of passages."""
        return self.tokenizer or (TOKENIZER if self.is_served else self.model)

    def checked(self) -> "StudySettings":
        """Return the settings with models spelled as the catalog does.

        Raises:
            UserError: options contradict each other, or name a model that is not known.
        """
        if not 0 <= self.overlap_tokens < self.passage_tokens:
            raise UserError(
                f"--overlap-tokens: {self.overlap_tokens} must be from 0 to below "
                f"{self.passage_tokens}"
            )
        if self.out.resolve().is_relative_to(self.documents.resolve()):
            raise UserError(
                f"--out: {self.out} lies in {self.documents}, whose files are the documents; "
                "choose another"
            )
        if self.generate_questions is None:
            for option in ("writer", "attempts"):
                if getattr(self, option) is not None:
                    raise UserError(f"--{option}: requires --generate-questions")
        if self.retrieval.startswith(SERVED):
            return replace(self, retrieval="dense", encoder=self.retrieval).checked()
        if self.retrieval not in RETRIEVALS:
            raise unknown(
                "retrieval", self.retrieval, (*RETRIEVALS, f"{SERVED}NAME"), "--retrieval"
            )
        sources = dict[str, Any]()
        for option, (kind, elsewhere) in SOURCES.items():
            source = getattr(self, option)
            if source and not re.match(elsewhere, source):
                sources[option] = check_source(source, f"--{option}", kind)
        if self.is_served:
            check_served(self.entry)
        elif self.tokenizer:
            raise UserError(f"--tokenizer: only for a model {SERVED}NAME; {self.model} has its own")
        if self.device.startswith("cuda") and device_here(AUTO) == "cpu":
            raise UserError(
                f"--device: {self.device!r}: torch finds no CUDA device here; known: cpu"
            )
        return replace(self, **sources)
