"""The retriever, the method and the model of a study, as a pipeline that answers questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragauge.config.experiment import Config
from ragauge.config.reading import checked, read
from ragauge.datasets.base.dataset import Document
from ragauge.datasets.study import StudyQuestions
from ragauge.errors import UserError, explain_missing_extra
from ragauge.io.jsonl import read_jsonl, read_object
from ragauge.library.methods import Answer, Method
from ragauge.library.models import Model, loaded
from ragauge.library.questions import Question
from ragauge.study.passages import Passage
from ragauge.study.retrieval import Retrieval, Searcher
from ragauge.study.writing import EMBEDDINGS, PASSAGES, RETRIEVAL
from ragauge.text import clean


@dataclass(frozen=True, eq=False, repr=False)
class Pipeline:
    """What a study recommends: passages, their retrieval, a method and a model."""

    passages: tuple[Passage, ...]
    searcher: Searcher
    top: int  # passages that a question gets
    method: Method
    model: Model
    max_new_tokens: int

    @classmethod
    @explain_missing_extra()
    def load(cls, path: str | Path, threads: int | None = None) -> Pipeline:
        """Load the pipeline that a study recommends.

        Args:
            path: `recommended.yaml` of a study. `passages.jsonl` and `retrieval.json` are read from
                its folder, and `embeddings`, which are made there where they are missing.
            threads: of a CPU; None: all cores.

        Raises:
            UserError: a file is missing or not as a study writes it, or the model cannot be loaded.
        """
        path = Path(path)
        config = checked(Config, read(path), str(path))
        jobs = list(config.answers())
        if len(jobs) != 1:
            raise UserError(f"{path}: has {len(jobs)} variants; a pipeline is of one")
        [(dataset, model, _)] = jobs
        lines = read_jsonl(path.with_name(PASSAGES))
        passages = tuple(Passage(line["title"], line["text"]) for _, line in lines)
        facts = read_object(path.with_name(RETRIEVAL))["retrieval"]
        if facts.get("file"):
            raise UserError(f"{path}: its passages were retrieved elsewhere: {facts['file']}")
        how = Retrieval(facts["kind"], facts["encoder"], facts["reranker"])
        return cls(
            passages,
            Searcher(how, passages, path.with_name(EMBEDDINGS)),
            facts["top"],
            Method(config.method(jobs[0])),
            loaded(model, config.models[model], threads),
            config.max_new_tokens(dataset),
        )

    def retrieve(self, question: str) -> tuple[Document, ...]:
        """Find the passages for a question, the best first."""
        found = self.searcher.rankings([question], self.top)
        [order] = found[self.searcher.retrieval.chosen]
        best = (self.passages[number] for number in order[: self.top])
        return tuple(Document(passage.document, passage.text) for passage in best)

    def answer(self, question: str) -> Answer:
        """Answer a question as the study did.

        Raises:
            UserError: it cannot be answered.
        """
        passages = self.retrieve(question)
        cleaned = Question("", clean(question), passages, ("?",), (), dataset=StudyQuestions())
        return self.method.answer(self.model, cleaned, max_new_tokens=self.max_new_tokens)
