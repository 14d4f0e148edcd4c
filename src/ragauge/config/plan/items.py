"""Jobs of the tables and figures, and of the page that shows them: what each is rendered from."""

import os
from collections.abc import Collection
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.config.code import code_of
from ragauge.config.experiment import AnswerJob, Protocol
from ragauge.config.plan.answers import DataPlan
from ragauge.config.plan.contents import contents
from ragauge.config.plan.part import PlanPart
from ragauge.config.reads import Datasets, Kind, Reads, VariantJob, is_of_kind, kind_of
from ragauge.methods.base import making

FILES = {
    "table": "csv",
    "figure": "svg",
    "pdf": "pdf",
    "png": "png",
    "latex": "tex",
    "markdown": "md",
}
ITEMS = "ragauge.report.items"  # the package whose folders are papers


class ItemPlan(PlanPart):
    """The items have no labels: each is a rule."""

    def names(self) -> list[str]:
        """The items that have a rule: those of the experiment, and all others that can be used."""
        return sorted({*self.config.item_names(), *registry.usable("item")})

    def files(self, item: str) -> dict[str, str]:
        return {name: f"{self.paths.reports}/{item}.{suffix}" for name, suffix in FILES.items()}

    def all_files(self) -> list[str]:
        return [path for item in self.config.item_names() for path in self.files(item).values()]

    def papers(self) -> dict[str, list[str]]:
        """The files of the experiment's items by the folder of their paper, which is the name of a
        target.
        """
        files: dict[str, list[str]] = {}
        for item in self.config.item_names():
            folder, _, paper = registry.module_name("item", item).rpartition(".")[0].rpartition(".")
            if folder == ITEMS:
                files.setdefault(paper, []).extend(self.files(item).values())
        return files

    def inputs(self, item: str) -> dict[str, list[str]]:
        """The files that an item is rendered from, by what they are: what it says that it reads."""
        reads = _reads(item)
        jobs = self._answer_jobs(reads)
        judged = set(self.config.judged()) if reads.judgements else set()
        people = self.config.human_judgements if reads.judgements else None
        trainings = self.config.training if reads.training_data else ()
        staleness = self.config.staleness if reads.staleness else ()
        studies = self.config.retrievals().values() if reads.retrieval else ()
        paths = self.paths
        inputs: dict[str, list[str]] = {
            "answers": list(map(paths.records, jobs)),
            **{
                protocol: [getattr(paths, protocol).format(dataset=d, model=m) for d, m in pairs]
                for protocol, pairs in self._timed_pairs(reads).items()
            },
            "judgements": [paths.judgements.format(**j._asdict()) for j in jobs if j in judged],
            "human_judgements": [people] if people else [],
            "training": [
                f"{paths.training}/data/train.jsonl".format(training=label) for label in trainings
            ],
            "predictions": [paths.predictions] if reads.predictions else [],
            "pipelines": [
                f"{paths.pipeline}.jsonl".format(pipeline=label) for label in self._pipelines(reads)
            ],
            "staleness": [paths.staleness.format(staleness=label) for label in staleness],
            "retrieval": [str(path) for path in studies if path.exists()],
        }
        return {name: files for name, files in inputs.items() if files}

    def settings(self, item: str) -> dict[str, Any]:
        """The entries of the configuration behind what an item reads, by section and label, and the
        contents of the files that users bring.
        """
        reads = _reads(item)
        config = self.config
        jobs = self._answer_jobs(reads)
        pipelines = self._pipelines(reads)
        pairs = {(job.dataset, job.model) for job in jobs}.union(*self._timed_pairs(reads).values())
        models = {model for _, model in pairs}
        models |= {config.pipeline_model(config.pipelines[label]) for label in pipelines}
        finders = {config.models[label].finder for label in models}
        models |= {finder for finder in finders if finder}
        trainings = {label for model in models for label in config.trainings(model)}
        labels: dict[str, Collection[str]] = {
            "models": models,
            "datasets": {dataset for dataset, _ in pairs},
            "methods": {job.variant for job in jobs},
            "training": config.training if reads.training_data else trainings,
            "pipelines": pipelines,
            "databases": config.databases if pipelines or reads.staleness else (),
            "staleness": config.staleness if reads.staleness else (),
        }
        entries = {
            section: {
                label: getattr(config, section)[label].model_dump() for label in sorted(names)
            }
            for section, names in labels.items()
        }
        inputs = self.inputs(item)
        files = [*inputs.get("human_judgements", ()), *inputs.get("retrieval", ())]
        return {"seed": config.seed, **entries, "contents": contents(files)}

    def about(self, item: str) -> str:
        """The docstring of an item's file: what the item shows, and its limits."""
        return (registry.module("item", item).__doc__ or item).strip()

    paper = staticmethod(registry.paper)

    def code(self, item: str) -> str:
        """The digest of the code that renders an item."""
        return code_of(
            "report.figures.writing",
            components=[registry.module_name("item", item), *self.metrics()],
        )

    def metrics(self) -> list[str]:
        """The modules of metrics: they are loaded by name, so no import shows them."""
        return [registry.module_name("metric", name) for name in registry.usable("metric")]

    def package_files(self, *patterns: str) -> list[str]:
        """Files of the package that are read but are no code, such as the parts of the page."""
        package = Path(os.path.relpath(__file__)).parents[2]
        return sorted(str(path) for pattern in patterns for path in package.glob(pattern))

    def _answer_jobs(self, reads: Reads) -> list[AnswerJob]:
        """The jobs whose answers an item reads."""
        variants = reads.select(self._variant_jobs)
        return [AnswerJob(one.dataset, one.model, one.variant) for one in variants]

    def _timed_pairs(self, reads: Reads) -> dict[Protocol, list[tuple[str, str]]]:
        """The pairs of data set and model whose times an item reads, by protocol."""
        kinds: dict[Protocol, Datasets | None] = {
            "latency": reads.latency,
            "load": reads.load,
            "stream": reads.stream,
        }
        return {
            protocol: [
                (dataset, model)
                for dataset, model in self.config.measured(protocol)
                if is_of_kind(self._kind(dataset), kind)
            ]
            for protocol, kind in kinds.items()
            if kind is not None
        }

    def _pipelines(self, reads: Reads) -> list[str]:
        """The labels of the pipelines that an item reads."""
        entries = self.config.pipelines.items()
        return [label for label, entry in entries if entry.schedule in reads.pipelines]

    @cached_property
    def _variant_jobs(self) -> list[VariantJob]:
        """Every answer job as an item chooses from it."""
        methods = self.config.methods
        options = {name: asdict(entry.instance) for name, entry in methods.items()}
        changed = {
            name: making.changed_options(entry.instance).keys() for name, entry in methods.items()
        }
        kinds = {label: self._kind(label) for label in self.config.datasets}
        timed = {
            (protocol.dataset, name)
            for protocol in self.config.protocols
            for name in protocol.methods
        }
        models = set(self.config.measured("latency"))
        return [
            VariantJob(
                *job,
                method=methods[job.variant].method,
                options=options[job.variant],
                changed=changed[job.variant],
                kind=kinds[job.dataset],
                trained=bool(self.config.trainings(job.model))
                and (job.dataset, job.model) not in models,
                timed=(job.dataset, job.variant) in timed,
            )
            for job in self.config.answers()
        ]

    def _kind(self, dataset: str) -> Kind:
        return kind_of(DataPlan(self.config, self.cores).kind(dataset))


def _reads(item: str) -> Reads:
    reads: Reads = registry.module("item", item).READS
    return reads
