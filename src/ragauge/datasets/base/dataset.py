"""Base classes of data sets: `Dataset`, `Example`, and ways to read and arrange documents."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ragauge.errors import UserError
from ragauge.io.files import write_file
from ragauge.io.jsonl import field, objects, read_records, strings
from ragauge.io.redaction import redacted
from ragauge.metrics.base import wordless
from ragauge.options import PositiveInt

if TYPE_CHECKING:
    from ragauge.assets.pins import Pin

Fold = Literal["all", "tuning", "test"]

# Lost in the Middle (Liu et al., 2023), whose prompts Superposition Prompting takes for NQ-Open.
SEARCH_RESULTS = "Write a high-quality answer for the given question using only the following relevant search results."


@dataclass(frozen=True)
class Document:
    """A passage as the prompt shows it."""

    title: str
    text: str


@dataclass(frozen=True)
class Stretch:
    """A stretch of an example's document, in characters."""

    document: int  # index among the example's documents
    start: int
    stop: int


@dataclass(frozen=True)
class TraceEntry:
    """The arrival of a question in a trace."""

    arrival_s: float
    new_tokens: int | None = None  # of the response; None: as the protocol says
    conversation: str | None = None  # whose turns come one after another
    # the text is made up; its length and the documents that requests share are the trace's
    is_simulated: bool = False


@dataclass(frozen=True)
class Example:
    """One question with the documents it is asked over."""

    key: str  # unique in its data set and stable over runs
    question: str
    documents: tuple[Document, ...]
    answers: tuple[str, ...]  # the answer and its aliases
    gold: tuple[int, ...]  # indices into `documents` of those that hold the answer
    gold_stretches: tuple[Stretch, ...] = ()  # where in them, as far as the data set says
    trace: TraceEntry | None = None  # of a data set that is a trace

    @property
    def wordless_answers(self) -> list[str]:
        """The answers of which a metric's normalisation leaves nothing."""
        return wordless(self.answers)


@dataclass(frozen=True)
class Dataset(ABC):
    """A data set: a subclass in a file of its own says how its official records are read.

    The fields of a subclass are its options; their annotations say which values they take.
    """

    # the prompt's first sentence, before any document; or a whole prompt, see build_prompt
    preamble: ClassVar[str]
    # names in ragauge.metrics; the first is the data set's primary one
    metrics: ClassVar[tuple[str, ...]]
    multi_hop: ClassVar[bool] = False  # whether a question needs several of its documents
    long: ClassVar[bool] = False  # whether a question is asked of one long document
    questions: ClassVar[int | None] = None  # in the whole data set
    # name of the token counts of a mean question (cost/tokens.yaml)
    counts: ClassVar[str | None] = None
    # what is downloaded, which data sets may share, and its GB
    archive: ClassVar[tuple[str, float] | None] = None
    # names in the catalog of what `default_path` makes the records from
    assets: ClassVar[tuple[str, ...]] = ()
    # of an answer, where the data set's own protocol says so
    max_new_tokens: ClassVar[int | None] = None
    unlabelled: ClassVar[bool] = False  # whether a question may have no known answer
    # arguments of datasets.load_dataset that give the official records
    hub: ClassVar[Mapping[str, Any]] = {}

    seed: int = 0  # of everything that the data set draws
    # which questions: `tuning`, a fifth of them, to choose options on; `test`, the others
    fold: Fold = "all"
    # file of another system's ranking of each question's documents, which then stand in that order;
    # a document is named by its number, from 0, without this option
    retrieved: str | None = None

    @property
    def name(self) -> str:
        """The registered name, which is that of the file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def instruction(self) -> str:
        """The text in front of the documents: the preamble, as the options have it."""
        return self.preamble

    @abstractmethod
    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        """Parse one official record, a JSON object.

        Args:
            place: "file:line", for messages.

        Raises:
            UserError: a field is missing, of another type, empty or out of range.
        """

    def default_path(self) -> Path:
        """Return a local file in the official format, fetched on first use.

        Raises:
            UserError: it cannot be fetched, or has no source.
        """
        if not self.hub:
            raise UserError(
                f"data set {self.name!r} has no source of its own; "
                "give a file with --data, or as `data` of a configuration"
            )
        return _from_hub(self.name, self.hub)

    def official(self, pin: Pin | None = None) -> Path:
        """`default_path`, as a pin (a revision of the repository on the hub, the hash of the file)
        and the lock in use have it.

        Raises:
            UserError: it cannot be fetched, is another file, or the lock lacks it.
        """
        from ragauge.assets import pins
        from ragauge.assets.store import check_sha256

        pin = pin or pins.Pin()
        if self.downloads():
            pin = pins.required_pin("datasets", self.name, pin)
        at_revision = {**self.hub, "revision": pin.revision}
        path = _from_hub(self.name, at_revision) if pin.revision else self.default_path()
        if pin.sha256 is not None:
            check_sha256(path, pin.sha256, f"the source of data set {self.name}")
        return path

    def fetched(self, pin: Pin, lock: bool) -> Pin:
        """Fetch the official file, and say what it is: its hash, and the commit of its repository
        on the hub; with `lock` the commit that the repository, or the pin's revision of it, is
        now.

        Raises:
            UserError: as `official`.
        """
        from ragauge.assets import hub, pins
        from ragauge.io.files import file_sha256

        pin = pins.required_pin("datasets", self.name, pin)
        repository = self.repository()
        commit = pin.revision
        if lock and repository and not pins.COMMIT.fullmatch(commit or ""):
            try:
                commit = hub.dataset_commit(repository, commit)
            except Exception as error:  # of the hub, of two generations of its HTTP library
                raise out_of_reach(self.name, repository, _reason(error)) from error
        sha256 = file_sha256(self.official(pins.Pin(revision=commit, sha256=pin.sha256)))
        return pins.Pin(revision=commit, sha256=sha256)

    @classmethod
    def repository(cls) -> str | None:
        """Return the repository of the hub that it is loaded from; None where it has another
        source.
        """
        path = cls.hub.get("path", "")
        return path if "/" in path else None

    @classmethod
    def downloads(cls) -> bool:
        """Return whether `default_path` downloads a file of its own; files made of assets are pinned
        with these.
        """
        return bool(cls.hub) or cls.archive is not None

    def examples(self, path: Path) -> Iterator[tuple[str, Example]]:
        """Yield the examples of a file in the official format, each with its place: "file:line"."""
        for place, record in read_records(path):
            if self.includes(record, place):
                yield place, self.parse(record, place)

    def includes(self, record: Mapping[str, Any], place: str) -> bool:
        """Return whether a record is among those that the options choose."""
        return True

    def read(self, path: Path) -> Iterator[Example]:
        """Yield the examples of a file in the official format, in its order, each checked."""
        places: dict[str, str] = {}
        for place, example in self.examples(path):
            check(example, place, unlabelled=self.unlabelled)
            first = places.setdefault(example.key, place)
            if first != place:
                line = first.rpartition(":")[2]
                raise UserError(f"{place}: same question as line {line} (key {example.key!r})")
            # in any file and order
            for_tuning = hashlib.sha256(f"fold {example.key}".encode()).digest()[0] % 5 == 0
            if self.fold in ("all", "tuning" if for_tuning else "test"):
                yield example


@dataclass(frozen=True)
class ArrangedDataset(Dataset):
    """A data set whose questions can have fewer documents, in another order, several joined to one."""

    # number of documents: the gold ones and the first others; None: all
    documents: PositiveInt | None = None
    joined: PositiveInt = (
        1  # number of adjacent documents, as they then stand, that are joined to one
    )
    blank_line: bool = False  # before the question, as in Superposition Prompting's released code

    def arranged(self, example: Example, place: str) -> Example:
        """Apply these options to an example."""
        if self.documents is not None:
            gold = example.gold
            count = len(example.documents)
            if not len(gold) <= self.documents <= count:
                raise UserError(
                    f"{place}: must have {len(gold)} to {count} documents, not {self.documents}"
                )
            others = [i for i in range(count) if i not in gold]
            example = reordered(example, sorted([*gold, *others[: self.documents - len(gold)]]))
        return joined(reordered(example, self.order(example, place)), self.joined)

    def order(self, example: Example, place: str) -> list[int]:
        """Return the former place of each document, in the new order."""
        return list(range(len(example.documents)))


def example_of(
    record: Mapping[str, Any],
    place: str,
    *,
    key: str = "",
    answers: tuple[str, ...] = (),
    documents: str = "documents",
    text: str = "text",
    gold: str = "is_gold",
) -> Example:
    """Read the Example of a record with a question and a list of documents, each with a title.

    Args:
        key, answers: of the Example, unless the record's `id` and `answers` are.
        documents, text, gold: names of the list, of a document's text and of whether it is gold.

    Raises:
        UserError: a field is missing or of another type.
    """
    key = key or field(record, "id", str, place)
    question = field(record, "question", str, place)
    answers = answers or strings(record, "answers", place)
    rows = objects(record, documents, place)
    return Example(
        key=key,
        question=question,
        documents=tuple(
            Document(field(row, "title", str, at), field(row, text, str, at)) for row, at in rows
        ),
        answers=answers,
        gold=tuple(i for i, (row, at) in enumerate(rows) if field(row, gold, bool, at)),
    )


def out_of_reach(name: str, source: str, reason: object) -> UserError:
    """Return the error for a data set whose source is unreachable, with a remedy."""
    return UserError(
        f"data set {name!r} could not be loaded from {source} ({reason}); "
        "give a copy of its official file with --data FILE"
    )


def check(example: Example, place: str, *, unlabelled: bool = False) -> None:
    """Raise UserError: no answer, unless it may be unlabelled, no document, or an empty one."""
    if not example.answers and not unlabelled:
        raise UserError(f"{place}: question without answers: {example.question!r}")
    if not example.documents:
        raise UserError(f"{place}: question without documents: {example.question!r}")
    for index, document in enumerate(example.documents):
        if not document.text.strip():
            raise UserError(f"{place}: document {index} ({document.title!r}) is empty")


def shuffled_order(count: int, seed: int, key: str) -> list[int]:
    """Return a permutation of range(count) from a hash of seed and key: the same on any Python and
    for any limit.
    """
    return sorted(range(count), key=lambda i: hashlib.sha256(f"{seed}/{key}/{i}".encode()).digest())


def reordered(example: Example, order: Sequence[int]) -> Example:
    """Return the example with these documents, all gold ones among them: document i is the former
    document `order[i]`.
    """
    place_of = {former: place for place, former in enumerate(order)}
    documents = tuple(example.documents[former] for former in order)
    gold = tuple(sorted(place_of[g] for g in example.gold))
    stretches = tuple(replace(s, document=place_of[s.document]) for s in example.gold_stretches)
    return replace(example, documents=documents, gold=gold, gold_stretches=stretches)


def joined(example: Example, size: int) -> Example:
    """Return the example with `size` adjacent documents at a time as one, under the first one's
    title; gold if one was.
    """
    if size == 1:
        return example
    groups = [example.documents[at : at + size] for at in range(0, len(example.documents), size)]
    documents = tuple(
        Document(first.title, "\n".join([first.text, *(f"{d.title}: {d.text}" for d in rest)]))
        for first, *rest in groups
    )
    return replace(
        example, documents=documents, gold=tuple(sorted({g // size for g in example.gold}))
    )


def _from_hub(name: str, arguments: Mapping[str, Any]) -> Path:
    """Return the records of `datasets.load_dataset(**arguments)`, cached as JSONL in ragauge's
    home.
    """
    from ragauge.assets import store

    digest = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:12]
    path = store.home() / "datasets" / f"{name}-{digest}.jsonl"
    if path.exists():
        return path
    from datasets import load_dataset

    content = BytesIO()
    try:
        load_dataset(**arguments).to_json(content, force_ascii=False)
    except Exception as error:  # the library raises some thirty kinds: of the network, the hub, the disk, the parser
        raise out_of_reach(name, arguments["path"], _reason(error)) from error
    write_file(path, content.getvalue())
    return path


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {redacted(' '.join(str(error).split()))[:200]}"
