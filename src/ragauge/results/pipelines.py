"""The pipelines of a run: each its specification and its records.

A pipeline either scores given text (perplexity) or continues it (latency).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ragauge.cost.trace import Trace, calls
from ragauge.errors import validating
from ragauge.io import records
from ragauge.io.jsonl import read_object
from ragauge.io.records import SequenceRecord
from ragauge.pipelines.modes.base import mode_class
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import PipelineSpecification
from ragauge.results.cells import Keys
from ragauge.results.runs import Runs, absence

# hide: as many as decoding hides; None: nothing is searched, or not known
Nprobe = int | Literal["hide"] | None
Task = Literal["perplexity", "generate"]
SequenceKey = tuple[
    str, int, int
]  # a sequence: its key, its tokens, and how many of them are scored

Likelihoods = dict[SequenceKey, float]

# labels in tables of options that are not at their defaults
LABELS: dict[str, Callable[[Any], str]] = {
    "neighbours": "{} neighbours".format,
    "exclude": lambda _: "own article passed over",
    "mode": lambda mode: mode_class(mode).label,
    "retrofit_minutes": "trained {:g} minutes".format,
    "adapters": lambda _: "trained",
    "read_ahead": lambda _: "neighbours not read ahead",
    "engine": lambda _: "ONNX Runtime",
    # of the index; named where indexes are compared
    "near_duplicates": lambda _: "near-duplicates kept",
}


class Options(tuple[tuple[str, Any], ...]):
    """Options besides schedule and index that make two pipelines different systems: names and
    values that are not at their defaults, in the order of LABELS; as text their label in tables.
    """

    @classmethod
    def from_settings(cls, settings: PipelineSettings) -> Options:
        """Return the options of a pipeline; without neighbours there is no way of reading them."""
        keys = LABELS if settings.schedule_class.reads_neighbours else ("engine",)
        fields = type(settings).model_fields
        values = ((key, getattr(settings, key)) for key in keys if key in fields)
        return cls((key, value) for key, value in values if value != fields[key].default)

    def __str__(self) -> str:
        return ", ".join(LABELS[name](value) for name, value in self)


@dataclass(frozen=True)
class IndexName:
    label: str
    filled: int | None = None  # vectors in all, where some were drawn
    database: str = ""  # its label; empty: not known

    def __str__(self) -> str:
        return self.label + (f" (filled: {self.filled:,})" if self.filled else "")


@dataclass(frozen=True, eq=False)
class PipelineRun:
    """A pipeline of a run: its specification and, where it has run, its records."""

    runs: Runs
    name: str
    specification: PipelineSpecification
    path: Path
    meta: Keys = field(default_factory=dict)
    missing: str | None = None  # why there are no records

    @property
    def settings(self) -> PipelineSettings:
        return self.specification.pipeline

    @property
    def text(self) -> str:
        """Label of the text that is read: an evaluation set, or the database that it is held out
        of.
        """
        return self.settings.evaluation or self.specification.database

    @property
    def database(self) -> str:  # that neighbours come from; empty where none are read
        return self.specification.database if self.settings.schedule_class.reads_neighbours else ""

    @property
    def index(self) -> IndexName | None:
        facts = self.specification.index
        return IndexName(facts.label, facts.filled, self.database) if facts else None

    @property
    def nprobe(self) -> Nprobe:
        return self.settings.nprobe if self.specification.index else None

    @cached_property
    def options(self) -> Options:
        return Options.from_settings(self.settings)

    @cached_property
    def all_records(self) -> list[SequenceRecord]:
        return [] if self.missing else records.read_kind(self.path, SequenceRecord)

    @cached_property
    def records(self) -> list[SequenceRecord]:
        return [record for record in self.all_records if record.status == "ok"]

    @property
    def failed(self) -> list[SequenceRecord]:
        return [record for record in self.all_records if record.status == "failed"]

    @cached_property
    def nll(self) -> Likelihoods:
        return mean_nll(self.records)

    @cached_property
    def trials_s(self) -> list[float]:
        return [s for record in self.records for s in record.trials_s if math.isfinite(s) and s > 0]

    @property
    def load_share(self) -> float | None:
        """The largest share of the machine that other processes used during trials; None if not
        recorded.
        """
        return load_share(self.records)

    @cached_property
    def traces(self) -> list[Trace]:
        """The traces of the median trials, one a sequence."""
        return traces(self.path, self.records)


def load_share(records: Sequence[SequenceRecord]) -> float | None:
    """The largest of the shares that are recorded; None without any."""
    return max((r.load_share for r in records if r.load_share is not None), default=None)


def traces(path: Path, records: Sequence[SequenceRecord]) -> list[Trace]:
    """The traces of a file's records.

    Raises:
        UserError: one is damaged; the message names the file and the sequence.
    """
    return [calls(record.trace, f"{path}: sequence {record.key}") for record in records]


def mean_nll(records: Sequence[SequenceRecord]) -> Likelihoods:
    """Mean negative log-likelihood of a token, by sequence."""
    known = ((record, record.nll) for record in records if record.nll is not None)
    return {(r.key, r.tokens, r.scored): nll for r, nll in known if math.isfinite(nll)}


def pipelines(runs: Runs) -> list[PipelineRun]:
    """Return the pipelines with records, in the configuration's order, then those without.

    Raises:
        UserError: metadata are missing or of another version.
    """
    entries = runs.config.pipelines
    paths = {path.stem: path for path in sorted((runs.folder / "pipelines").glob("*.jsonl"))}
    names = dict.fromkeys([*entries, *paths])
    recorded = [_recorded(runs, paths[name]) for name in names if name in paths]
    return recorded + [_planned(runs, name) for name in names if name not in paths]


def _recorded(runs: Runs, path: Path) -> PipelineRun:
    meta = records.read_meta(path) or {}
    where = records.meta_path(path)
    with validating(f"{where}: not the specification of a pipeline of this version"):
        specification = PipelineSpecification.model_validate(meta.get("specification"))
    return PipelineRun(runs, path.stem, specification, path, meta)


def _planned(runs: Runs, name: str) -> PipelineRun:
    specification = runs.config.pipeline_specification(runs.config.pipelines[name])
    if index := specification.index:
        folder = runs.folder / "databases" / specification.database / "indexes" / index.label
        report = folder / "recall.json"
        vectors = read_object(report).get("vectors") if report.exists() else None
        index = index.model_copy(update={"vectors": vectors})
    path = runs.folder / "pipelines" / f"{name}.jsonl"
    specification = specification.model_copy(update={"index": index})
    return PipelineRun(runs, name, specification, path, missing=absence(path))
