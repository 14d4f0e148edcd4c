"""An experiment: its configuration, and the jobs and objects that follow from it."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from ragauge import registry
from ragauge.assets.catalog import entries
from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings, TimedSection
from ragauge.config.schema import Sections
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Dataset
from ragauge.datasets.study import RETRIEVAL
from ragauge.io.specifications import AnswerSpecification
from ragauge.methods.base.method import Method
from ragauge.methods.evidence.account import WRAPPING, TrainedDefaults, read_account
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
    def timed_sections(self) -> list[tuple[str, TimedSection]]:
        """The path and the settings of every measurement of times."""
        sections: list[tuple[str, TimedSection | None]]
        if isinstance(self.latency, list):
            sections = [(f"latency.{n}", settings) for n, settings in enumerate(self.latency)]
        else:
            sections = [("latency", self.latency)]
        sections += [("load", self.load), ("stream", self.stream)]
        return [(path, settings) for path, settings in sections if settings]

    @property
    def protocols(self) -> list[LatencySettings]:
        """The latency protocols, each on a data set of its own."""
        sections = self.timed_sections
        return [settings for _, settings in sections if isinstance(settings, LatencySettings)]

    def protocol(self, dataset: str) -> LatencySettings | None:
        return next((protocol for protocol in self.protocols if protocol.dataset == dataset), None)

    def pipeline_model(self, pipeline: PipelineSettings) -> str:
        return pipeline.model or next(iter(self.models))

    def pipeline_database(self, pipeline: PipelineSettings) -> str:
        return pipeline.database or next(iter(self.databases))

    def interleaved(self, label: str) -> list[str]:
        """Return the labels of the pipelines that take turns with one, itself among them."""
        own = self.pipelines[label]
        system = own.without_schedule
        alike = [other for other, its in self.pipelines.items() if its.without_schedule == system]
        return alike if own.interleaved else [label]

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
        """The threads of a server that is a job: the most that one of its pipelines names."""
        return max(self.pipelines[label].server_threads for label in self.servers()[server])

    def judged(self) -> list[AnswerJob]:
        judged = self.judge.methods if self.judge else ()
        return [job for job in self.answers() if job.variant in judged]

    def answers(self) -> Iterator[AnswerJob]:
        for dataset, (label, model), (name, variant) in product(
            self.datasets, self.models.items(), self.methods.items()
        ):
            if (
                _includes(variant.datasets, dataset)
                and _includes(model.datasets, dataset)
                and _includes(model.methods, name)
            ):
                yield AnswerJob(dataset, label, name)

    def limit(self, job: AnswerJob) -> int | None:
        """The number of questions of a job; None is all that the data set has."""
        return min(
            filter(None, (self.datasets[job.dataset].limit, self.methods[job.variant].limit)),
            default=None,
        )

    def method(self, job: AnswerJob) -> Method:
        """The method of a job with its options, adapted to the engine of its model and to the
        training of what finds evidence.
        """
        where = f"methods.{job.variant} on models.{job.model}"
        method = self.methods[job.variant].instance
        return self.models[job.model].adapt(method, where, self.trained_defaults(job.model))

    def trained_defaults(self, model: str) -> TrainedDefaults:
        """How the finder of a model (a label), or it itself, was trained to be asked: as its
        training here says, or its account.
        """
        entry = self.models[self.models[model].finder or model]
        if not entry.training:
            return read_account(entry.source)
        training = self.training[entry.training]
        template = training.template or getattr(entries().get(training.model), "template", None)
        return TrainedDefaults(
            f"training.{entry.training}",
            training.model_dump(include={"request", "sentences"}),
            WRAPPING | {"template": template},
        )

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
        """The (data set, model) pairs of a protocol."""
        return [
            (section.dataset, model)
            for path, section in self.timed_sections
            if path.startswith(protocol)
            for model in self._measured_models(section)
        ]

    def _measured_models(self, section: TimedSection) -> list[str]:
        """The models (labels) whose times are measured.

        Unless named, none that is trained here or whose finder a method needs, nor one of another
        engine than torch: the protocols time calls on caches.
        """
        finds = self.finds(section.methods)
        return section.models or [
            label
            for label, model in self.models.items()
            if not (model.training or (model.finder and finds))
            and model.engine == "torch"
            and _includes(model.datasets, section.dataset)
        ]

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
        return {
            label: Path(entry.data).with_name(RETRIEVAL)
            for label, entry in self.datasets.items()
            if entry.dataset == "study" and entry.data
        }

    def corpora(self) -> Iterator[str]:
        """The corpora of the databases and of their evaluation sets."""
        for database in self.databases.values():
            for texts in (database, *database.evaluation_sets.values()):
                yield from texts.sources

    def trainings(self, model: str) -> list[str]:
        """The trainings (labels) that a model and what finds evidence for it come from."""
        entry = self.models[model]
        entries = [entry, self.models[entry.finder]] if entry.finder else [entry]
        return [each.training for each in entries if each.training]

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
        timed = {
            path: f"{len(self._measured_models(section)) * section.requests_of_model} requests"
            for path, section in self.timed_sections
        }
        lines = {
            "run": f"{self.run} (results/{self.run}, reports/{self.run})",
            "models": ", ".join(self.models),
            "training": ", ".join(self.training),
            "data sets": ", ".join(
                f"{label} ({entry.limit or 'all'} questions)"
                for label, entry in self.datasets.items()
            ),
            "methods": ", ".join(self.methods),
            "answers": f"{len(list(self.answers()))} jobs",
            **timed,
            "pipelines": ", ".join(self.pipelines),
            "items": ", ".join(self.item_names()) or "none",
        }
        return "\n".join(f"{name:9} {text}" for name, text in lines.items() if text)


def _includes(labels: Collection[str] | None, label: str) -> bool:
    """Whether a label is among those that an entry names, or it names none."""
    return labels is None or label in labels


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
        instruction=dataset.instruction,
        max_new_tokens=max_new_tokens,
        model=model.source,
        template=model.template or "",
        tokenization=model.tokenization or "whole",
        **model.template_facts,
        engine=model.engine_facts,
        finder=finder.finder_facts if finder else None,
    )
