"""The retriever, the method and the model of a study, as a pipeline that answers questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragauge.config.experiment import AnswerJob, Config
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


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What a study recommends: passages, their retrieval, a method and a model."""

    passages: tuple[Document, ...]
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

        Raises UserError: a file is missing or not as a study writes it, or the model cannot be
        loaded.
        """
        path = Path(path)
        config = checked(Config, read(path), str(path))
        if len(config.methods) != 1 or len(config.models) != 1 or len(config.datasets) != 1:
            count = f"{len(config.methods)} methods"
            raise UserError(f"{path}: has {count}; a pipeline has one, as recommended.yaml does")
        facts = read_object(path.with_name(RETRIEVAL))["retrieval"]
        if "kind" not in facts:
            raise UserError(f"{path.with_name(RETRIEVAL)}: of an older study; run it again")
        lines = [record for _, record in read_jsonl(path.with_name(PASSAGES))]
        [(label, entry)] = config.models.items()
        [dataset] = config.datasets
        job = AnswerJob(dataset, label, *config.methods)
        how = Retrieval(facts["kind"], facts["encoder"], facts["reranker"])
        passages = [Passage(line["title"], line["text"]) for line in lines]
        return cls(
            tuple(Document(passage.document, passage.text) for passage in passages),
            Searcher(how, passages, path.with_name(EMBEDDINGS)),
            facts["top"],
            Method(config.method(job)),
            loaded(label, entry, threads),
            config.max_new_tokens(dataset),
        )

    def retrieve(self, question: str) -> tuple[Document, ...]:
        """Find the passages for a question, the best first."""
        rankings = self.searcher.rankings([question], self.top)
        [best] = rankings[self.searcher.retrieval.chosen]
        return tuple(self.passages[number] for number in best[: self.top])

    def answer(self, question: str) -> Answer:
        """Answer a question as the study did. Raises UserError: it cannot be answered."""
        asked = Question(
            "", clean(question), self.retrieve(question), ("unknown",), (), dataset=StudyQuestions()
        )
        return self.method.answer(self.model, asked, max_new_tokens=self.max_new_tokens)

    def __repr__(self) -> str:
        found = f"{self.top} of {len(self.passages)} passages by {self.searcher.retrieval.chosen}"
        return f"<Pipeline: {found}, {self.method!r}, {self.model!r}>"
