"""The results of a run, read lazily: answers, traces and times, with the method behind each file.

Which variant is which method with which options is read from a file's `.meta.json` (its
`specification`), and from the configuration for variants that left no records; never from a
variant's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ragauge import registry
from ragauge.config.reads import Datasets, Kind, is_of_kind, kind_of
from ragauge.cost import shapes
from ragauge.cost.hardware import Precision
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Trace, calls
from ragauge.datasets.base.dataset import Dataset
from ragauge.errors import UserError, unknown, validating
from ragauge.io import progress, records
from ragauge.io.jsonl import JsonObject, read_object
from ragauge.io.records import Record, ServedResponse
from ragauge.io.specifications import AnswerSpecification
from ragauge.results.cells import Cell
from ragauge.results.stats import pooled
from ragauge.results.times import LatencyTimes, LoadTimes, StreamTimes, TimesFile

if TYPE_CHECKING:
    from ragauge.config.experiment import AnswerJob, Config
    from ragauge.config.model import ModelEntry
    from ragauge.methods.base.method import Method

Times = TypeVar("Times", bound=TimesFile)
_SHAPE = TypeAdapter(Shape)

RANKED = ("top", "bm25", "tfidf", "dense", "shortest")
WITHOUT_LABELS = ("agreement", "groundedness")  # metrics of a data set whose answers nobody knows
# marks a served model's numbers in notes, as they are not of this package's decoder
ELSEWHERE = "another stack"


@dataclass(frozen=True, eq=False)
class Variant:
    """One method variant on one data set with one model: its options and, where it has run, its
    records.
    """

    runs: Runs
    name: str
    dataset: str  # labels: the folder names
    model: str
    method: str
    options: Mapping[str, Any]  # of the method, defaults included
    # None: no records, or nothing beside them says what they are of
    specification: AnswerSpecification | None
    meta: Mapping[str, Any]
    path: Path  # of the records
    # options whose defaults a training decides, of the model that finds evidence
    trained_defaults: Mapping[str, Any]
    missing: str | None = None  # why there are none

    @property
    def group(self) -> Group:
        return Group(self.runs, self.dataset, self.model)

    @property
    def primary_metric(self) -> str:
        return self.runs.metrics(self.dataset)[0]

    @cached_property
    def records(self) -> dict[str, Record]:
        """The records by question key, in the order of the questions; failed ones included."""
        if self.missing:
            return {}
        return {record.key: record for record in records.read(self.path)}

    @cached_property
    def fields(self) -> dict[str, JsonObject]:
        """The records' fields by question key, as metrics take them; without the traces."""
        return {key: record.model_dump(exclude={"trace"}) for key, record in self.records.items()}

    @property
    def responses(self) -> list[ServedResponse]:
        """The responses of a served model, failed questions included."""
        return [record.served for record in self.records.values() if record.served]

    @property
    def cached_shares(self) -> list[float]:
        """The share of each prompt that a server found in its cache, where it says so, such that
        their mean is the share of all tokens.
        """
        known = [
            (response.cached_tokens / response.prompt_tokens, response.prompt_tokens)
            for response in self.responses
            if response.prompt_tokens and response.cached_tokens is not None
        ]
        return pooled(*zip(*known, strict=True)) if known else []

    @property
    def row(self) -> str:
        """The method as tables name it: rankers by encoder, everything else by method."""
        if self.method != "dense":
            return self.method
        encoder = model_name(str(self.param("encoder")))
        return "contriever" if "contriever" in encoder.lower() else f"dense:{encoder}"

    @property
    def keys(self) -> JsonObject:
        """The keys of its rows in tables, of which each table has some."""
        return {
            "model": self.model,
            "dataset": self.dataset,
            "method": self.row,
            "variant": self.name,
            "top_k": self.param("top_k") or "",
            "iterations": self.param("iterations") or "",
        }

    def param(self, name: str) -> Any:
        """An option's value; None if the method has none of that name."""
        return self.options.get(name)

    def is_default(self, method: str, free: Collection[str] = (), **others: Any) -> bool:
        """Whether this is a method with every option at its default, or as given in `others`;
        `free` may be any. An option that did not exist when the records were made has its default.
        """
        known = {**defaults(method), **self.trained_defaults}
        wanted = {k: v for k, v in known.items() if k not in free} | others
        options = {**known, **self.options}
        return self.method == method and all(options.get(k) == v for k, v in wanted.items())

    def is_superposition(self, *free: str, **others: Any) -> bool:
        """Whether this is superposition with every option but top_k and the `free` ones at its
        default, or as given in `others`.
        """
        return self.is_default("superposition", ("top_k", *free), **others)

    @property
    def prunes(self) -> bool:
        return bool(self.param("path_pruning")) and self.param("saliency") != "none"

    @property
    def precision(self) -> Precision | None:
        """How its numbers were computed and stored; None if it is not recorded."""
        facts = self.specification.engine if self.specification else None
        return Precision(facts.dtype, facts.weights, facts.kv) if facts and facts.dtype else None

    @property
    def device(self) -> str | None:
        """The device of the model that answered; None if it is not recorded."""
        return self.specification.engine.device if self.specification else None

    @cached_property
    def stack(self) -> str | None:
        """The name that the answering server gives itself; None: the model ran here."""
        if self.specification is None or self.specification.engine.served is None:
            return None
        stacks = (response.stack for response in self.responses)
        return next(filter(None, stacks), "a server")

    @property
    def engine(self) -> str:
        """The engine in words: the precision here, or another stack."""
        return (
            f"{ELSEWHERE}: {self.stack}"
            if self.stack
            else str(self.precision or "dtype not recorded")
        )

    @property
    def is_multi_hop(self) -> bool:
        facts = self.runs.facts(self.dataset)
        return facts is not None and facts.multi_hop

    @cached_property
    def failed(self) -> dict[str, str]:
        return {
            key: record.reason or "no reason given"
            for key, record in self.records.items()
            if record.status == "failed"
        }

    @cached_property
    def answered(self) -> dict[str, Record]:
        """The records of the questions that did not fail, by key."""
        return {key: record for key, record in self.records.items() if key not in self.failed}

    def values(self, field: str) -> list[float]:
        """A field's numbers, such as `online_s`, of the questions that did not fail."""
        return [*self.by_question(field).values()]

    def by_question(self, field: str) -> dict[str, float]:
        """The same by the question's key."""
        values = {key: getattr(record, field) for key, record in self.answered.items()}
        return {k: v for k, v in values.items() if v is not None and math.isfinite(v)}

    @property
    def has_responses(self) -> bool:
        """Whether a question was answered, or a server responded to one, if without an answer."""
        return bool(self.answered or self.responses)

    @cached_property
    def shape(self) -> Shape | None:
        """The decoder's shape, from the meta file or from the known models; None if neither has it.

        Raises:
            UserError: the sizes in the meta file are damaged.
        """
        recorded = self.meta.get("shape")
        if recorded:
            with validating(f"{records.meta_path(self.path)}: shape"):
                return _SHAPE.validate_python(recorded)
        known = [name for name in identities(self) if name in shapes.names()]
        return shapes.named(known[0]) if known else None

    @cached_property
    def traces(self) -> dict[str, Trace]:
        """The traces of the questions that did not fail."""
        return {
            key: calls(record.trace, f"{self.path}: record {key}")
            for key, record in self.answered.items()
            if record.trace
        }


@dataclass(frozen=True)
class Group:
    """A data set and a model, with the variants of a run that answered it."""

    runs: Runs
    dataset: str
    model: str

    @property
    def keys(self) -> JsonObject:
        return {"model": self.model, "dataset": self.dataset}

    @property
    def model_entry(self) -> ModelEntry | None:
        """The model's part of the configuration."""
        return self.runs.config.models.get(self.model)

    @property
    def variants(self) -> list[Variant]:
        """The variants with records."""
        pair = (self.dataset, self.model)
        return [v for v in self.runs.run if (v.dataset, v.model) == pair]

    def find(self, *methods: str) -> list[Variant]:
        """The variants of each method in turn, by top_k (those without one first), then in the
        configuration's order.
        """
        found = (v for v in self.variants if v.method in methods)
        return sorted(found, key=lambda v: (methods.index(v.method), v.param("top_k") or 0))

    @property
    def naive(self) -> Variant | None:
        """The plain run of all documents in one prompt, if there is one."""
        return next(iter(self.find("naive")), None)

    @property
    def timed(self) -> LatencyTimes | None:
        """The latency file of the model on prompts of the data set, one that was not refused where
        there are several. It may name the registered data set in place of the label, unless that is
        the label of another one here.
        """
        registered = self.runs.registered(self.dataset)
        labels = {variant.dataset for variant in self.runs.run}
        names = {self.dataset} if registered in labels else {self.dataset, registered}
        found = [t for t in self.runs.latencies if t.model == self.model and t.dataset in names]
        return min(found, key=lambda latency: bool(latency.refused), default=None)


def unconfigured() -> Config:
    """A configuration that asks for nothing, of records whose own nobody has."""
    from ragauge.config.experiment import Config

    return Config.model_construct(run="", models={})


@dataclass(frozen=True, eq=False)
class Runs:
    """Everything under `results/<run>`; `config` says what else was asked for."""

    folder: Path
    config: Config = field(default_factory=unconfigured)

    @property
    def seed(self) -> int:
        return self.config.seed

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The variants with records, then those configured without; in the configuration's order,
        then by name. Records that the configuration does not ask for, or asks for with other
        settings, count as missing, which one line says.
        """
        jobs = {tuple(job): job for job in self.config.answers()}
        found = {key: self._unrun(*key) for key in jobs}
        stale = []
        for variant in self._recorded():
            key = (variant.dataset, variant.model, variant.name)
            why = self._difference(variant, jobs.get(key))
            if why:
                stale.append(f"{'/'.join(key)} ({why})")
            found[key] = replace(variant, missing=why or variant.missing)
        if stale:
            progress.line(f"{self.folder}: records left out: {', '.join(stale)}")
        return tuple(found.values())

    @cached_property
    def run(self) -> tuple[Variant, ...]:
        return tuple(v for v in self.variants if not v.missing)

    def groups(self, datasets: Datasets = "any") -> list[Group]:
        """The (data set, model) pairs with records, of these data sets."""
        groups = dict.fromkeys(variant.group for variant in self.run)
        return [group for group in groups if is_of_kind(self.kind(group.dataset), datasets)]

    def by_group(
        self, cells: Callable[[Group], Iterable[Cell]], datasets: Datasets = "any"
    ) -> list[Cell]:
        """Collect the cells that a function makes of each (data set, model) pair with records."""
        return [cell for group in self.groups(datasets) for cell in cells(group)]

    def kind(self, dataset: str) -> Kind:
        return kind_of(self.facts(dataset))

    def metrics(self, dataset: str) -> tuple[str, ...]:
        """The metrics of a data set, the primary one first; those without labels where no question
        has a known answer.
        """
        facts = self.facts(dataset)
        if facts is None:
            raise UserError(f"data set {dataset}: {_unknown(self.registered(dataset))}")
        records = next((variant.records for variant in self.run if variant.dataset == dataset), {})
        is_labelled = any(record.answers for record in records.values()) or not records
        return facts.metrics if is_labelled or not facts.unlabelled else WITHOUT_LABELS

    def facts(self, dataset: str) -> type[Dataset] | None:
        """The class of a data set, whose class variables are its facts; None if none is registered."""
        return dataset_class(self.registered(dataset))

    def registered(self, dataset: str) -> str:
        """The registered name behind a data set's label."""
        made = self._made(dataset)
        return made.dataset if made else self._configured(dataset)

    def dataset_options(self, dataset: str) -> Mapping[str, Any]:
        """The options of a data set's label, as records or the configuration have them."""
        made = self._made(dataset)
        entry = self.config.datasets.get(dataset)
        return made.dataset_options if made else entry.options if entry else {}

    def _made(self, dataset: str) -> AnswerSpecification | None:
        """What the first records of a data set's label say of themselves."""
        stated = (variant.specification for variant in self.run if variant.dataset == dataset)
        return next(filter(None, stated), None)

    def _configured(self, dataset: str) -> str:
        entry = self.config.datasets.get(dataset)
        return entry.dataset if entry else dataset

    @cached_property
    def latencies(self) -> tuple[LatencyTimes, ...]:
        """The files that `ragauge time` wrote."""
        return self._times("latency", LatencyTimes)

    @cached_property
    def loads(self) -> tuple[LoadTimes, ...]:
        """The files that `ragauge load` wrote."""
        return self._times("load", LoadTimes)

    @cached_property
    def streams(self) -> tuple[StreamTimes, ...]:
        """The files that `ragauge stream` wrote."""
        return self._times("stream", StreamTimes)

    def _times(self, folder: str, kind: type[Times]) -> tuple[Times, ...]:
        return tuple(map(kind.read, sorted((self.folder / folder).glob("*/*.json"))))

    @cached_property
    def retrievals(self) -> tuple[Mapping[str, Any], ...]:
        """The searches of `ragauge study` for the questions of its data sets, each with its label,
        "dataset".
        """
        paths = self.config.retrievals().items()
        return tuple(
            {**read_object(path), "dataset": label} for label, path in paths if path.exists()
        )

    @cached_property
    def predictions(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of predictions.json (`ragauge cost --published`); none if there is no such file."""
        path = self.folder / "predictions.json"
        return tuple(read_object(path)["rows"]) if path.exists() else ()

    def source(self, model: str) -> str:
        """The source of the model of a label, as records or the configuration have it; else the
        label.
        """
        answered = (v.specification.model for v in self.run if v.model == model and v.specification)
        entry = self.config.models.get(model)
        return next(answered, (entry.source if entry else None) or model)

    def named(self, model: str, name: str) -> Variant:
        """The variant of a name, as the records of the model or of another one have it, else the
        configuration.
        """
        known = [v for v in self.variants if v.name == name]
        best = min(known, key=lambda v: (v.model != model, bool(v.missing)), default=None)
        return best or self._unrun("", model, name)

    def _difference(self, variant: Variant, job: AnswerJob | None) -> str:
        """Say how a variant's records differ from what the configuration asks for; empty if they do
        not, or if it asks for no answers at all.
        """
        if variant.missing or not self.config.methods:
            return ""
        if job is None:
            return "not in the configuration"
        recorded = variant.specification
        if recorded is None:
            return ""
        configured = self.config.specification(job)
        # as stated, where the engine has the method run with other options
        stated = asdict(self.config.methods[job.variant].instance)
        options = {**defaults(recorded.method), **recorded.options}
        source = self.config.models[job.model].source
        agrees = {
            "method": recorded.method == configured.method,
            "options": _agree(options, configured.options) or _agree(options, stated),
            "data set": recorded.dataset == configured.dataset,
            "options of the data set": _agree(recorded.dataset_options, configured.dataset_options),
            "max_new_tokens": recorded.max_new_tokens in (None, configured.max_new_tokens),
            "model": model_name(recorded.model) in {model_name(job.model), model_name(source)},
        }
        differing = [name for name, same in agrees.items() if not same]
        return f"made with another {', '.join(differing)}" if differing else ""

    def _recorded(self) -> Iterator[Variant]:
        paths = (self.folder / "answers").glob("*/*/*.jsonl")
        for path in sorted(paths, key=lambda path: path.with_suffix("").parts):
            variant = self._unrun(path.parts[-3], path.parts[-2], path.stem)
            try:
                yield self._described(variant, records.read_meta(path) or {})
            except UserError as problem:
                yield replace(variant, missing=str(problem))

    def _described(self, variant: Variant, meta: JsonObject) -> Variant:
        """The variant of a file of records with these metadata. Raises UserError: a damaged
        specification, or a data set that nobody knows.
        """
        described = replace(variant, meta=meta, missing=None)
        dataset = self._configured(variant.dataset)
        if "specification" in meta:
            place = records.meta_path(variant.path).name
            with validating(f"{place} holds no valid specification"):
                made = AnswerSpecification.model_validate(meta["specification"])
            described = replace(
                described, method=made.method, options=made.options, specification=made
            )
            dataset = made.dataset or dataset
        if dataset_class(dataset) is None:
            raise UserError(f"{_unknown(dataset)}, nor are its metrics known")
        return described

    def _unrun(self, dataset: str, model: str, name: str) -> Variant:
        """A variant without records; a name that the configuration does not have is a method at its
        defaults.
        """
        entry = self.config.methods.get(name)
        method = entry.method if entry else name
        options = asdict(entry.instance) if entry else defaults(name)
        path = self.folder / "answers" / dataset / model / f"{name}.jsonl"
        trained = self.config.trained_defaults(model).options if model in self.config.models else {}
        return Variant(
            self, name, dataset, model, method, options, None, {}, path, trained, absence(path)
        )


def absence(path: Path) -> str:
    """Why there is no finished file of records."""
    return "unfinished" if records.partial_path(path).exists() else "no records"


def _agree(recorded: Any, configured: Any) -> bool:
    """Whether settings agree in all keys that both have: neither older records nor another version
    know all of them.
    """
    if isinstance(recorded, Mapping) and isinstance(configured, Mapping):
        shared = recorded.keys() & configured.keys()
        return all(_agree(recorded[key], configured[key]) for key in shared)
    # records have lists, as JSON does, in place of tuples
    return bool(to_jsonable_python(recorded) == to_jsonable_python(configured))


def model_name(source: str) -> str:
    """The name of a model or encoder without its place, as folders are moved."""
    return re.split("[/:]", source)[-1]


def _unknown(dataset: str) -> str:
    return str(unknown("data set", dataset, registry.names("dataset")))


def dataset_class(name: str) -> type[Dataset] | None:
    """The registered data set of a name; None if there is none."""
    try:
        return registry.component("dataset", name, Dataset)
    except UserError:
        return None


def identities(variant: Variant) -> list[str]:
    """The names that its model is known by, in lower case (`known_names`)."""
    return known_names(variant.specification.model if variant.specification else variant.model)


@cache
def known_names(source: str) -> list[str]:
    """The names of a source's model in catalog and hub, in lower case; none for a folder, whatever
    its name is.
    """
    from ragauge.assets import pins
    from ragauge.assets.catalog import entries

    named = pins.split_pin(source)[0]
    alike = {n: e.source.rpartition("/")[2] for n, e in entries().items() if named in (n, e.source)}
    return list(dict.fromkeys(name.lower() for pair in alike.items() for name in pair))


def method_of(variant: Variant) -> Method | None:
    """The method of a variant; None for records of a method, or of options, that there are no more."""
    from ragauge.methods.base import making

    try:
        return making.make(variant.method, **variant.options)
    except UserError:
        return None


@cache
def defaults(method: str) -> Mapping[str, Any]:
    """Every option of a method with its default; empty if there is no such method."""
    from ragauge.methods.base.method import Method

    try:
        return {f.name: f.default for f in fields(registry.component("method", method, Method))}
    except UserError:
        return {}
