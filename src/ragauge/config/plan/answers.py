"""Jobs that write the questions of data sets, answer them with models, and judge the answers."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragauge import datasets, registry
from ragauge.config.code import answer_code, code_of
from ragauge.config.experiment import AnswerJob
from ragauge.config.plan.contents import contents
from ragauge.config.plan.part import Labels, PlanPart, any_of, manifest
from ragauge.datasets.base.dataset import Dataset
from ragauge.methods.base import making
from ragauge.training.settings import ENDPOINT


class DataPlan(PlanPart):
    """Label: dataset."""

    def sources(self) -> Iterator[str]:
        yield from (asset for label in self.config.datasets for asset in self.kind(label).assets)

    def kind(self, dataset: str) -> type[Dataset]:
        return registry.component("dataset", self.config.datasets[dataset].dataset, Dataset)

    def file(self, labels: Labels) -> list[str]:
        """The official file that the configuration names, or the package's questions of a data set
        made from assets, and another system's ranking.
        """
        shipped = Path(os.path.relpath(datasets.__file__)).parent / "questions"
        made = sorted(map(str, shipped.glob("*.json*"))) if self.assets(labels) else []
        entry = self.config.datasets[labels.dataset]
        named = [entry.data, entry.options.get("retrieved")]
        return ([] if entry.data else made) + list(filter(None, named))

    def assets(self, labels: Labels) -> list[str]:
        """The manifests of the assets that a data set without a file of its own is made from."""
        has_file = self.config.datasets[labels.dataset].data
        return [] if has_file else list(map(manifest, self.kind(labels.dataset).assets))

    def settings(self, labels: Labels) -> dict[str, Any]:
        """What the questions depend on, the contents of the file that they are read from included."""
        entry = self.config.datasets[labels.dataset]
        keys = entry.model_dump(
            include={"dataset", "data", "options", "skip", "revision", "sha256"}, exclude_none=True
        )
        return {
            **keys,
            "seed": self.config.dataset_seed(labels.dataset),
            "contents": contents(self.file(labels)),
        }

    def code(self, labels: Labels) -> str:
        dataset = registry.module_name("dataset", self.config.datasets[labels.dataset].dataset)
        return code_of("datasets.base.examples", components=[dataset])


class AnswerPlan(PlanPart):
    """Labels: dataset, model, variant; for a part of the questions also part and jobs."""

    def sources(self) -> Iterator[str]:
        models = self.config.models.values()
        yield from (model.source for model in models if not (model.training or model.served))
        yield from (
            model.served.tokenizer for model in models if model.served and model.served.tokenizer
        )
        yield from (a for v in self.config.methods.values() for a in v.instance.local_assets())

    def models(self, labels: Labels) -> list[str]:
        """The manifests of a model and of the one that finds evidence for it."""
        finder = self.config.models[labels.model].finder
        return [
            path
            for model in (labels.model, finder)
            if model
            for path in self.model_manifests(model)
        ]

    def files(self) -> list[str]:
        return list(map(self.paths.records, self.config.answers()))

    def parts(self, labels: Labels) -> list[str]:
        """The records of the jobs that a variant's questions are dealt to."""
        jobs = self.config.datasets[labels.dataset].jobs
        place = {name: getattr(labels, name) for name in AnswerJob._fields}
        return [
            f"{self.paths.part}.jsonl".format(**place, part=part, jobs=jobs) for part in range(jobs)
        ]

    def part_option(self, labels: Labels) -> list[str]:
        """The option that names a part; empty if one job answers everything."""
        part = getattr(labels, "part", None)
        return [] if part is None else [f"--part={part}/{labels.jobs}"]

    def labels_of_datasets(self, *, several_jobs: bool) -> str:
        """The data sets whose questions are dealt to several jobs, or to one, as a wildcard's
        pattern.
        """
        return any_of(
            label
            for label, entry in self.config.datasets.items()
            if (entry.jobs > 1) == several_jobs
        )

    def specification(self, labels: Labels) -> str:
        return self.config.specification(labels).digest

    def code(self, labels: Labels) -> str:
        method = self.config.methods[labels.variant].instance
        return answer_code(method, self.config.models[labels.model].engine)

    def encoders(self, labels: Labels) -> list[str]:
        """The manifests of what a variant's method reads besides the model."""
        return self.assets([labels.variant])

    def assets(self, variants: Iterable[str]) -> list[str]:
        """The manifests of what the methods of variants read besides the model."""
        methods = self.config.methods
        assets = {asset for name in variants for asset in methods[name].instance.local_assets()}
        return sorted(map(manifest, assets))

    def modules(self, variants: Iterable[str]) -> list[str]:
        """The full names of the modules of the methods of variants."""
        methods = self.config.methods
        return [module for name in variants for module in making.modules(methods[name].instance)]


class JudgementPlan(PlanPart):
    """Labels: dataset, model, variant."""

    def sources(self) -> Iterator[str]:
        """The model that judges, if it is one on this machine."""
        judge = self.config.judge
        if judge and judge.model != ENDPOINT:
            yield judge.model

    def judge(self, labels: Labels) -> list[str]:
        return list(map(manifest, self.sources()))

    def examples(self, labels: Labels) -> list[str]:
        """The questions with their passages, where answers or the faithfulness of evidence are
        judged by them.
        """
        assert self.config.judge is not None
        return (
            [self.paths.data.format(dataset=labels.dataset)]
            if self.config.judge.of != "evidence"
            else []
        )

    def options(self, labels: Labels) -> list[str]:
        """What is judged, of how many questions, by which judge here; the environment describes an
        endpoint.
        """
        judge = self.config.judge
        assert judge is not None  # without it there is no such job
        limit = [f"--limit={judge.limit}"] if judge.limit else []
        examples = [
            option
            for path in self.examples(labels)
            for option in (f"--of={judge.of}", f"--examples={path}")
        ]
        here = [f"--model={judge.model}", f"--dtype={judge.dtype}", f"--device={judge.device}"]
        return limit + examples + (here if judge.model != ENDPOINT else [])

    def gpus(self, labels: Labels) -> int:
        judge = self.config.judge
        return int(judge is not None and judge.model != ENDPOINT and judge.device == "cuda")
