"""An experiment: its configuration, and the jobs and objects that follow from it."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from ragauge import registry
from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings
from ragauge.config.schema import Sections
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Dataset
from ragauge.datasets.study import RETRIEVAL
from ragauge.io.specifications import AnswerSpecification
from ragauge.methods.base.method import Method
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import (
    PipelineSpecification,
    describe_index,
    specify_pipeline,
)

AFFECTS_RESULTS = False

Protocol = Literal["latency", "load", "stream"]  # of times: a section of the configuration


class AnswerJob(NamedTuple):
    """One job: a method variant answers the questions of a data set with a model. All three are
    labels.
    """

    dataset: str
    model: str
    variant: str


class Config(Sections):
    """An experiment of ragauge."""

    @property
    def protocols(self) -> tuple[LatencySettings, ...]:
        """The latency protocols, each on a data set of its own."""
        return tuple(protocol for _, protocol in self.placed_protocols())

    def protocol(self, dataset: str) -> LatencySettings | None:
        return next((protocol for protocol in self.protocols if protocol.dataset == dataset), None)

    def placed_protocols(self) -> Iterator[tuple[str, LatencySettings]]:
        """The path of each protocol's keys, and the protocol."""
        if isinstance(self.latency, list):
            yield from (
                (f"latency.{place}", protocol) for place, protocol in enumerate(self.latency)
            )
        elif self.latency:
            yield "latency", self.latency

    def pipeline_model(self, pipeline: PipelineSettings) -> str:
        return pipeline.model or next(iter(self.models))

    def pipeline_database(self, pipeline: PipelineSettings) -> str:
        return pipeline.database or next(iter(self.databases))

    def pipeline_specification(self, pipeline: PipelineSettings) -> PipelineSpecification:
        """Return what the records of a pipeline depend on, as far as the configuration says."""
        model = self.pipeline_model(pipeline)
        database = self.pipeline_database(pipeline)
        index = None
        if pipeline.queries_index:
            recipe = self.databases[database].indexes[pipeline.index]
            index = describe_index(pipeline.index, recipe.model_dump())
        decoder = self.models[model].model_dump(include={"source", "dtype", "device"})
        return specify_pipeline(
            pipeline, model=model, database=database, index=index, seed=self.seed, **decoder
        )

    def servers(self) -> dict[tuple[str, str], list[str]]:
        """The servers that are jobs of their own, by database and index, with the labels of the
        pipelines that ask.
        """
        servers: dict[tuple[str, str], list[str]] = {}
        for label, pipeline in self.pipelines.items():
            if pipeline.has_server_job:
                servers.setdefault((self.pipeline_database(pipeline), pipeline.index), []).append(
                    label
                )
        return servers

    def server_threads(self, server: tuple[str, str]) -> int:
        """Of a server that is a job: the most that one of its pipelines names."""
        return max(self.pipelines[label].server_threads for label in self.servers()[server])

    def evaluation_texts(self) -> list[str]:
        """The labels of the texts that pipelines predict: what databases hold out, and their
        evaluation sets.
        """
        return [
            *self.databases,
            *(name for database in self.databases.values() for name in database.evaluation_sets),
        ]

    def judged(self) -> Iterator[AnswerJob]:
        yield from (
            job for job in self.answers() if self.judge and job.variant in self.judge.methods
        )

    def answers(self) -> Iterator[AnswerJob]:
        for dataset, (label, model), (name, variant) in product(
            self.datasets, self.models.items(), self.methods.items()
        ):
            chosen = (dataset, variant.datasets), (dataset, model.datasets), (name, model.methods)
            if all(among is None or one in among for one, among in chosen):
                yield AnswerJob(dataset, label, name)

    def limit(self, job: AnswerJob) -> int | None:
        """The number of questions of a job; None is all that the data set has."""
        return min(
            filter(None, (self.datasets[job.dataset].limit, self.methods[job.variant].limit)),
            default=None,
        )

    def method(self, job: AnswerJob) -> Method:
        """The method of a job with its options, adapted to the engine of its model."""
        where = f"methods.{job.variant} on models.{job.model}"
        return self.models[job.model].adapt(self.methods[job.variant].instance, where)

    def dataset(self, label: str) -> Dataset:
        entry = self.datasets[label]
        return loader.make(entry.dataset, seed=self.dataset_seed(label), **entry.options)

    def specification(self, job: AnswerJob) -> AnswerSpecification:
        """Everything that the records of a job depend on, but for the hashes of files."""
        model = self.models[job.model]
        method = self.method(job)
        finder = self.models[model.finder] if model.finder and method.finds else None
        return specify(
            method, self.dataset(job.dataset), model, self.max_new_tokens(job.dataset), finder
        )

    def measured(self, protocol: Protocol) -> list[tuple[str, str]]:
        """The (data set, model) pairs of a protocol: those that are timed, or measured under load
        or on a stream. Unless named, no model trained here or whose finder a method needs, nor one
        of another engine than torch: the protocols time calls on caches.
        """
        pairs = []
        plain = {
            label: m
            for label, m in self.models.items()
            if (m.training, m.engine) == (None, "torch")
        }
        for section in filter(
            None, self.protocols if protocol == "latency" else (getattr(self, protocol),)
        ):
            finds = self.finds(section.methods)
            alone = {label: m for label, m in plain.items() if not (m.finder and finds)}
            fit = [
                label
                for label, m in alone.items()
                if m.datasets is None or section.dataset in m.datasets
            ]
            pairs += [(section.dataset, label) for label in getattr(section, "models", None) or fit]
        return pairs

    def finds(self, variants: Iterable[str]) -> bool:
        """Whether one of them lets the model's finder search or choose, where it has one."""
        return any(self.methods[name].instance.finds for name in variants)

    def evaluation(self, training: str) -> dict[str, int | None]:
        """The data sets (labels) that models of a training answer, and how many of their first
        questions; None: all.
        """
        limits: dict[str, list[int | None]] = {}
        for job in self.answers():
            if training in self.trainings(job.model):
                limits.setdefault(job.dataset, []).append(self.limit(job))
        return {
            name: None if None in known else max(filter(None, known))
            for name, known in limits.items()
        }

    def retrievals(self) -> dict[str, Path]:
        """The files of retrieved passages of the studies among the data sets (labels)."""
        studies = {
            label: entry.data for label, entry in self.datasets.items() if entry.dataset == "study"
        }
        return {label: Path(data).with_name(RETRIEVAL) for label, data in studies.items() if data}

    def trainings(self, model: str) -> list[str]:
        """The trainings (labels) that a model and what finds evidence for it come from."""
        entry = self.models[model]
        return list(
            filter(
                None, [entry.training, self.models[entry.finder].training if entry.finder else None]
            )
        )

    def gpus(self, model: str) -> int:
        gpus = self.models[model].resources.gpu
        return int(self.models[model].device == "cuda") if gpus is None else gpus

    def max_new_tokens(self, dataset: str) -> int:
        stated = self.datasets[dataset].max_new_tokens or self.generation.max_new_tokens
        return stated or self.dataset(dataset).max_new_tokens or 100

    def dataset_seed(self, label: str) -> int:
        seed = self.datasets[label].seed
        return self.seed if seed is None else seed

    def item_names(self) -> list[str]:
        """The items that are rendered; where all are, those of studies only if a study is among the
        data sets.
        """
        if self.items != "all":
            return list(self.items)
        studies = any(entry.dataset == "study" for entry in self.datasets.values())
        return [name for name in registry.names("item") if studies or not name.startswith("study_")]

    def overview(self) -> str:
        """Describe what is run, one subject a line."""
        jobs = list(self.answers())
        counted = sum(self.limit(job) or 0 for job in jobs)
        whole = dict.fromkeys(job.dataset for job in jobs if self.limit(job) is None)
        counts = [f"{counted:,} questions"] if counted else []
        counts += [f"all questions of {', '.join(whole)}"] if whole else []
        protocols = [
            protocol
            for dataset, _ in self.measured("latency")
            if (protocol := self.protocol(dataset))
        ]
        timed = sum(protocol.trials * len(protocol.methods) for protocol in protocols)
        requests = self.load.all_requests * len(self.measured("load")) if self.load else 0
        stream = self.stream
        streamed = (
            len(stream.methods) * stream.requests * len(self.measured("stream")) if stream else 0
        )
        lines: list[tuple[str, object, str]] = [
            ("run", True, f"{self.run} (results/{self.run}, reports/{self.run})"),
            ("models", True, ", ".join(self.models)),
            *(
                ("training", True, f"{label}: {t.model}, up to {t.steps} steps")
                for label, t in self.training.items()
            ),
            *(
                ("data set", True, f"{label}: {d.limit or 'all'} questions")
                for label, d in self.datasets.items()
            ),
            ("methods", self.methods, f"{len(self.methods)} variants: {', '.join(self.methods)}"),
            ("answers", jobs, f"{len(jobs)} jobs, {' and '.join(counts)}"),
            ("latency", timed, f"{timed} timed trials"),
            ("load", requests, f"{requests} requests"),
            ("stream", streamed, f"{streamed} requests"),
            ("pipelines", self.pipelines, f"{len(self.pipelines)}: {', '.join(self.pipelines)}"),
            ("items", True, ", ".join(self.item_names()) or "none"),
        ]
        return "\n".join(f"{name:9} {text}" for name, has_any, text in lines if has_any)


def specify(
    method: Method,
    dataset: Dataset,
    model: ModelEntry,
    max_new_tokens: int,
    finder: ModelEntry | None = None,
) -> AnswerSpecification:
    """Specify what records depend on, without the hashes of files, which are read where a job runs.

    Args:
        finder: the model that finds evidence, if it is a different one.
    """
    return AnswerSpecification(
        method=method.name,
        options=asdict(method),
        dataset=dataset.name,
        dataset_options=asdict(dataset),
        instruction=dataset.preamble,
        max_new_tokens=max_new_tokens,
        model=model.source,
        template=model.template or "",
        tokenization=model.tokenization or "whole",
        **model.template_facts,
        engine=model.engine_facts,
        finder=finder.finder_facts if finder else None,
    )
