"""What a run's pipelines left behind: each its specification and its records.

A pipeline either scores given text (perplexity) or continues it (latency).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ragauge.cost.trace import Call, Trace
from ragauge.generation import readers
from ragauge.generation.settings import PipelineSettings
from ragauge.io import records
from ragauge.io.records import SequenceRecord
from ragauge.io.specifications import PipelineSpecification
from ragauge.results import pipeline_specifications as specifications
from ragauge.results.runs import Runs

Nprobe = int | Literal["hide"] | None  # hide: as many lists as decoding hides; None: nothing is searched, or not known
Task = Literal["perplexity", "generate"]
Text = tuple[str, int]  # a sequence: its key and its tokens

# what a table says of an option that is not at its default
LABELS: dict[str, Callable[[Any], str]] = {
    "neighbours": "{} neighbours".format,
    "exclude": lambda _: "own article passed over",
    "characters": "last {} characters".format,
    "form": lambda form: readers.kind(form).label,
    "retrofit_minutes": "trained {:g} minutes".format,
    "adapters": lambda _: "trained",
    "reach": "reach {}".format,
    "bias": "bias {}".format,
    "read_ahead": lambda _: "neighbours not read ahead",
    "engine": lambda _: "ONNX Runtime",
    "near_duplicates": lambda _: "near-duplicates kept",  # of the index; told where indexes are compared
}


@dataclass(frozen=True)
class Options:
    """What, beside schedule and index, makes two pipelines different systems; as text their label in tables."""

    changed: tuple[tuple[str, Any], ...] = ()  # options that are not at their defaults, in the order of LABELS

    @classmethod
    def of(cls, settings: PipelineSettings) -> Options:
        """The options of a pipeline; without neighbours there is no way of reading them."""
        names = LABELS if settings.kind.reads_neighbours else ("engine",)
        default = {name: key.default for name, key in type(settings).model_fields.items() if name in names}
        given = {name: getattr(settings, name) for name in LABELS if name in default}
        return cls(tuple((name, value) for name, value in given.items() if value != default[name]))

    def having(self, name: str, value: Any) -> Options:
        """These and another one."""
        return Options((*self.changed, (name, value)))

    def without(self, name: str) -> Options:
        """These but one."""
        return Options(tuple(option for option in self.changed if option[0] != name))

    def __bool__(self) -> bool:
        return bool(self.changed)

    def __str__(self) -> str:
        return ", ".join(LABELS[name](value) for name, value in self.changed)


@dataclass(frozen=True)
class IndexName:
    """An index as tables name it."""

    label: str
    filled: int | None = None  # vectors in all, where some were drawn

    def __str__(self) -> str:
        return self.label + (f" (filled: {self.filled:,})" if self.filled else "")


@dataclass(frozen=True, eq=False)
class PipelineEntry:
    """One entry of the section `pipelines`: what it is and, where it has run, its records."""

    name: str
    specification: PipelineSpecification
    settings: PipelineSettings
    path: Path
    meta: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None  # why there are no records

    @property
    def text(self) -> str:
        """Label of the text that is read: an evaluation set, or the database that it is held out of."""
        return self.settings.evaluation or self.specification.database

    @property
    def index(self) -> IndexName | None:
        """The index that is asked."""
        facts = self.specification.index
        return IndexName(facts.label, facts.filled) if facts else None

    @property
    def nprobe(self) -> Nprobe:
        """Inverted lists that a search scans."""
        return self.settings.nprobe if self.specification.index else None

    @cached_property
    def options(self) -> Options:
        """What else makes it another system."""
        return Options.of(self.settings)

    @property
    def engine(self) -> Mapping[str, Any]:
        """What ran the decoder, as far as it was recorded: name, dtype, device, threads, cores."""
        return self.specification.engine

    @cached_property
    def all_records(self) -> list[SequenceRecord]:
        """Its records, failed ones included."""
        return [] if self.missing else records.read_kind(self.path, SequenceRecord)

    @cached_property
    def records(self) -> list[SequenceRecord]:
        """The records of the sequences that did not fail."""
        return [record for record in self.all_records if record.status == "ok"]

    @property
    def failed(self) -> list[SequenceRecord]:
        """The records of the sequences that failed."""
        return [record for record in self.all_records if record.status == "failed"]

    @cached_property
    def nll(self) -> dict[Text, float]:
        """Mean negative log-likelihood of a token, by sequence."""
        return {(r.key, r.tokens): r.nll for r in self.records if r.nll is not None and math.isfinite(r.nll)}

    @cached_property
    def trials_s(self) -> list[float]:
        """Seconds of all trials of all sequences."""
        return [s for record in self.records for s in record.trials_s if math.isfinite(s) and s > 0]

    @property
    def load_share(self) -> float | None:
        """The largest share of the machine that other processes used during trials; None if not recorded."""
        return max((r.load_share for r in self.records if r.load_share is not None), default=None)

    @cached_property
    def traces(self) -> list[Trace]:
        """The traces of the median trials, one a sequence."""
        return [[Call.from_json(call) for call in record.trace] for record in self.records]


def pipelines(runs: Runs) -> list[PipelineEntry]:
    """The pipelines with records, in the configuration's order, then those of it that have none.

    Raises:
        UserError: nothing says what a file of records is of, or its metadata are of another version.
    """
    entries = runs.config.pipelines if runs.config else {}
    paths = {path.stem: path for path in sorted((runs.folder / "pipelines").glob("*.jsonl"))}
    order = {name: place for place, name in enumerate(entries)}
    names = sorted(paths, key=lambda name: (order.get(name, len(order)), name))
    metas = {name: records.read_meta(paths[name]) or {} for name in names}
    found = []
    for name, specification in specifications.of_records(runs, {name: (paths[name], metas[name]) for name in names}):
        settings = specifications.settings(specification.pipeline, paths[name])
        found.append(PipelineEntry(name, specification, settings, paths[name], metas[name]))
    return found + [_without_records(runs, name) for name in entries if name not in paths]


def _without_records(runs: Runs, name: str) -> PipelineEntry:
    assert runs.config is not None
    specification = specifications.configured(runs, runs.config.pipelines[name])
    path = runs.folder / "pipelines" / f"{name}.jsonl"
    missing = "unfinished" if path.with_name(f"{path.name}.partial").exists() else "no records"
    return PipelineEntry(
        name, specification, specifications.settings(specification.pipeline, path), path, missing=missing
    )
