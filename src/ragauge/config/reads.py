"""Declare the inputs of an item, as data: before it renders the item, the workflow makes these
and nothing else.

Every item states it in its own file:

    READS = Reads(answers=(every("naive"), defaults("superposition", top_k=ANY)),
                  datasets="single_hop", predictions=True)
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ragauge.datasets.base.dataset import Dataset

Kind = Literal["single_hop", "multi_hop", "long"]  # of a data set
# short: single-hop or multi-hop
Datasets = Literal["single_hop", "multi_hop", "short", "long", "any"]


class Values(Enum):
    """The values of an option that are read, where the item does not list them."""

    ANY = "all"
    SMALLEST = "the smallest"
    COMPARED = "those that several variants have in common; where there are none, the smallest"


ANY = Values.ANY
SMALLEST = Values.SMALLEST
COMPARED = Values.COMPARED


@dataclass(frozen=True)
class VariantJob:
    """A variant that answers the questions of a data set with a model; `Reads.select` chooses among
    these.
    """

    dataset: str  # labels
    model: str
    variant: str
    method: str
    options: Mapping[str, Any]  # all options of the method, resolved
    changed: Collection[str]  # the names of those that are not at their defaults
    kind: Kind
    # whether the model, or what finds evidence for it, is fine-tuned here and not timed itself
    trained: bool = False
    timed: bool = False  # whether the latency protocol of the data set times the variant


@dataclass(frozen=True)
class AnswersRead:
    """Variants whose answers are read; `every`, `others`, `timed` and `defaults` make them."""

    methods: tuple[str, ...] = ()  # none: all methods
    excluded: tuple[str, ...] = ()
    timed: bool = False  # only variants that the latency protocol times
    # None: any options; else values, tuples of values or `Values`
    options: Mapping[str, Any] | None = None

    def select(self, group: Iterable[VariantJob]) -> list[VariantJob]:
        """Select from the variants of one data set and model."""
        matching = [job for job in group if self._matches(job)]
        for name, rule in (self.options or {}).items():
            if rule in (SMALLEST, COMPARED):
                values = [job.options[name] for job in matching]
                shared = {value for value, count in Counter(values).items() if count > 1}
                chosen = shared if rule is COMPARED and shared else {min(values, default=None)}
                matching = [job for job in matching if job.options[name] in chosen]
        return matching

    def _matches(self, variant: VariantJob) -> bool:
        if (self.methods and variant.method not in self.methods) or variant.method in self.excluded:
            return False
        if self.timed and not variant.timed:
            return False
        if self.options is None:
            return True
        return set(variant.changed) <= set(self.options) and all(
            isinstance(value, Values)
            or variant.options[name] in (value if isinstance(value, tuple) else (value,))
            for name, value in self.options.items()
        )


def every(*methods: str) -> AnswersRead:
    """All variants of these methods; of all methods where none is named."""
    return AnswersRead(methods)


def others(*excluded: str) -> AnswersRead:
    """All variants of all methods but these."""
    return AnswersRead(excluded=excluded)


def timed() -> AnswersRead:
    """The variants that the latency protocol of their data set times."""
    return AnswersRead(timed=True)


def defaults(method: str, **options: Any) -> AnswersRead:
    """The variants of a method with every option at its default but these, which have a value, one
    of a tuple of values, or a value among `Values`.
    """
    return AnswersRead((method,), options=options)


@dataclass(frozen=True)
class Reads:
    """The results of a run that an item reads."""

    answers: Sequence[AnswersRead] = ()
    datasets: Datasets = "any"  # whose answers
    # whether of models that the experiment fine-tunes, too; of those that it times in any case
    trained: bool = True
    latency: Datasets | None = None  # the times on prompts of these data sets
    load: Datasets | None = None  # the times under load on questions of these data sets
    stream: Datasets | None = None  # the times on a stream of questions of these data sets
    predictions: bool = False  # compute cycles predicted from the shapes of the paper's models
    judgements: bool = False  # of the evidence behind the answers
    training_data: bool = False  # what the models of the experiment are fine-tuned on
    pipelines: Collection[str] = ()  # schedules whose records are read
    staleness: bool = False  # the neighbours that stale and fresh queries find
    retrieval: bool = False  # what studies found for their questions

    def select(self, variants: Iterable[VariantJob]) -> list[VariantJob]:
        """The variants whose answers are read, in their order."""
        groups: dict[tuple[str, str], list[VariantJob]] = {}
        for job in variants:
            if is_of_kind(job.kind, self.datasets) and (self.trained or not job.trained):
                groups.setdefault((job.dataset, job.model), []).append(job)
        read = list[VariantJob]()
        for group in groups.values():
            names = {job.variant for answers in self.answers for job in answers.select(group)}
            read.extend(job for job in group if job.variant in names)
        return read


def kind_of(dataset: type[Dataset] | None) -> Kind:
    """The kind of a data set's class; single-hop where there is none."""
    if dataset is None or not (dataset.long or dataset.multi_hop):
        return "single_hop"
    return "long" if dataset.long else "multi_hop"


def is_of_kind(kind: Kind, datasets: Datasets) -> bool:
    """Whether a data set of a kind is among these."""
    return datasets in ("any", kind) or (datasets == "short" and kind != "long")
