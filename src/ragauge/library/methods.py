"""Methods with their options, ready to answer, and answers with their sources and costs."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ragauge.cost.cycles import compute_cycles
from ragauge.cost.trace import Call, calls
from ragauge.datasets.base.dataset import SEARCH_RESULTS, Dataset, Document, Example, check
from ragauge.errors import UserError, explain_missing_extra
from ragauge.library.models import Model
from ragauge.library.questions import Question
from ragauge.measure.answering import ask
from ragauge.methods.base import making
from ragauge.methods.base import method as methods
from ragauge.methods.evidence.account import read_account

# texts by their titles; or texts, pairs of title (or None) and text, a data set's documents
Documents = Mapping[str, str] | Iterable[str | tuple[str | None, str] | Document]
NEW_TOKENS = 100  # of an answer, where the data set's own protocol says nothing
# fields of an answer that are its record's
RECORDED = {
    "text",
    "prediction",
    "tokens",
    "online_s",
    "first_token_s",
    "offline_s",
    "cache_bytes",
}


@dataclass(frozen=True)
class Answer:
    """A method's answer to one question. Multiply-accumulates are None where the model's shape is
    not known.
    """

    text: str  # everything that was generated
    # the answer: the first line of the text; in a chat, the first that is not blank
    prediction: str
    # the documents that it was generated from, in reading order: their places among those given
    kept: tuple[int, ...]
    documents: tuple[Document, ...]  # these documents
    saliency: tuple[float | None, ...]  # one score a given document, where the method scores any
    evidence: tuple[str, ...] | None  # what it was generated from; None: the method looks for none
    # token counts: preamble, documents (one each), query, task, generated
    tokens: Mapping[str, Any]
    # multiply-accumulates of everything, what was prepared before the question included
    macs: int | None
    cycles: int | None  # those that the user waits for, of parallel paths the longest
    online_s: float | None  # seconds of the calls that the user waits for
    first_token_s: float | None  # seconds from the question to the first token
    offline_s: float | None  # seconds of the calls before the question
    cache_bytes: int | None  # of cached keys and values at their peak
    trace: tuple[Call, ...] = field(repr=False, default=())  # every call of the model

    def __str__(self) -> str:
        return self.prediction


@dataclass(frozen=True)
class Method:
    """An inference method with its options; `method` makes it."""

    inner: methods.Method

    @property
    def name(self) -> str:
        """Return the name in the registry."""
        return self.inner.name

    @property
    def options(self) -> Mapping[str, Any]:
        """Return all options, defaults included."""
        return asdict(self.inner)

    def on(self, model: Model) -> methods.Method:
        """Adapt the method to the model's engine.

        Raises:
            UserError: the engine lacks what the method needs.
        """
        trained = read_account(model.settings.source)
        return model.settings.adapt(self.inner, f"{self.name} on {model.name}", trained)

    @explain_missing_extra()
    def answer(
        self,
        model: Model,
        question: str | Example,
        documents: Documents | None = None,
        *,
        instruction: str | None = None,
        max_new_tokens: int | None = None,
    ) -> Answer:
        """Answer one question.

        Args:
            question: a question with `documents`, or a data set's example, which has its own.
            documents: texts (titled by their number), pairs of title and text (without a title:
                None), a data set's documents, or a mapping of titles to texts.
            instruction: before the documents; None: the data set's, or that of Lost in the Middle.
            max_new_tokens: of the answer, at least 1; None: the data set's, or 100.

        Raises:
            UserError: an argument that cannot be used, a model that cannot run the method, or a
                question that could not be answered, with the reason.
        """
        example = _example(question, documents)
        adapted = self.on(model)
        dataset = example.dataset if isinstance(example, Question) else None
        if instruction is None:
            instruction = dataset.instruction if dataset else SEARCH_RESULTS
        specification = model.specification.model_copy(
            update={
                "method": self.name,
                "options": asdict(adapted),
                "dataset": dataset.name if dataset else "",
                "dataset_options": asdict(dataset) if dataset else {},
                "instruction": instruction,
                "max_new_tokens": answer_tokens("answer", max_new_tokens, dataset),
            }
        )
        record = ask(model.engines.ready(specification, adapted), adapted, example, specification)
        if record.status == "failed":
            raise UserError(f"{self.name} on {model.name}: {record.reason}")
        trace = tuple(calls(record.trace, f"{self.name} on {model.name}"))
        shape = model.shape if trace else None  # a server's trace can be empty
        evidence = record.evidence
        return Answer(
            **record.model_dump(include=RECORDED),
            kept=tuple(record.kept),
            documents=tuple(example.documents[number] for number in record.kept),
            saliency=tuple(record.saliency),
            evidence=None if evidence is None else tuple(piece.text for piece in evidence),
            macs=compute_cycles(trace, shape, "total") if shape else None,
            cycles=compute_cycles(trace, shape) if shape else None,
            trace=trace,
        )


def method(name: str, **options: Any) -> Method:
    """Make a method by its name, with its options.

    Args:
        name: one of `ragauge list methods`.
        options: the method's own; the others are at their defaults.

    Raises:
        UserError: unknown name or option, or a value out of range.
    """
    return Method(making.make(name, **options))


def answer_tokens(caller: str, max_new_tokens: int | None, dataset: Dataset | None) -> int:
    """Return the most tokens of an answer: as given, or by default those of its data set, or 100.

    Args:
        caller: the library's function, for the message.

    Raises:
        UserError: less than 1.
    """
    if max_new_tokens is None:
        return (dataset and dataset.max_new_tokens) or NEW_TOKENS
    if max_new_tokens < 1:
        raise UserError(f"{caller}: max_new_tokens must be at least 1, not {max_new_tokens}")
    return max_new_tokens


def _example(question: str | Example, documents: Documents | None) -> Example:
    if isinstance(question, Example):
        if documents is not None:
            raise UserError(
                f"answer: question {question.key!r} has documents of its own; give it as text with others"
            )
        return question
    if not documents or isinstance(documents, str | Document):
        raise UserError(
            f"answer: question {question!r} needs documents: a list of texts or of (title, text)"
        )
    is_pair = isinstance(documents, tuple) and len(documents) == 2
    if is_pair and all(isinstance(part, str | None) for part in documents):
        raise UserError(
            "answer: documents: a pair could be one document or two; give [(title, text)] or a list"
            " of two texts"
        )
    given = documents.items() if isinstance(documents, Mapping) else documents
    titled = tuple(_document(n, document) for n, document in enumerate(given, start=1))
    example = Example(key="", question=question, documents=titled, answers=("unknown",), gold=())
    check(example, "answer")
    return example


def _document(number: int, given: str | tuple[str | None, str] | Document) -> Document:
    if isinstance(given, Document):
        return given
    match (str(number), given) if isinstance(given, str) else given:
        case (str() | None as title, str() as text):
            return Document(title or "", text)
    raise UserError(
        f"answer: documents: number {number} must be a text or (title, text), not {given!r:.60}"
    )
