"""Jobs that answer questions with models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from ragauge import methods, registry
from ragauge.config.plan.part import Labels, PlanPart, code_of, manifest
from ragauge.methods import Method


class AnswerPlan(PlanPart):
    """Labels: dataset, model, variant; for a part of the questions also part and jobs."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        models = self.config.models.values()
        yield from (model.source for model in models if not (model.training or model.served))
        yield from (model.served.tokenizer for model in models if model.served and model.served.tokenizer)
        yield from (asset for method in self.methods.values() for asset in method.assets())

    # --- models ---

    def models(self, labels: Labels) -> list[str]:
        """The manifests of a model and of the one that finds evidence for it."""
        finder = self.config.models[labels.model].finder
        return [path for model in (labels.model, finder) if model for path in self.model_manifests(model)]

    def gpus(self, labels: Labels) -> int:
        """The GPUs of a job with a model."""
        return self.config.gpus(labels.model)

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        """The memory of a job with a model; more in a further attempt."""
        return attempt * self.config.models[labels.model].resources.mem_mb

    def runtime(self, labels: Labels) -> int:
        """The minutes of a job with a model."""
        return self.config.models[labels.model].resources.runtime

    # --- answers ---

    def files(self) -> list[str]:
        """The records of every answer job."""
        return [f"{self.paths.answers}.jsonl".format(**job._asdict()) for job in self.config.answers()]

    def parts(self, labels: Labels) -> list[str]:
        """The records of the jobs that a variant's questions are dealt to."""
        jobs = self.config.datasets[labels.dataset].jobs
        place = {"dataset": labels.dataset, "model": labels.model, "variant": labels.variant, "jobs": jobs}
        return [f"{self.paths.part}.jsonl".format(**place, part=part) for part in range(jobs)]

    def part_option(self, labels: Labels) -> list[str]:
        """The option that names a part; empty if one job answers everything."""
        part = getattr(labels, "part", None)
        return [] if part is None else [f"--part={part}/{labels.jobs}"]

    def labels_of_datasets(self, *, several_jobs: bool) -> str:
        """The data sets whose questions are dealt to several jobs, or to one, as a wildcard's pattern."""
        labels = [label for label, entry in self.config.datasets.items() if (entry.jobs > 1) == several_jobs]
        return "|".join(map(re.escape, labels)) or "(?!)"

    def specification(self, labels: Labels) -> str:
        """The digest of the records' specification."""
        return self.config.specification(labels).digest

    def limit(self, labels: Labels) -> int | None:
        """The number of questions of a job; None is all that the data set has."""
        return self.config.limit(labels)

    def code(self, labels: Labels) -> str:
        """What answers: the runner, the engine and the method."""
        engine = registry.module_name("engine", self.config.models[labels.model].engine)
        return code_of("measure.inputs", "measure.runner", components=[*self.modules([labels.variant]), engine])

    # --- methods ---

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The method of every variant."""
        return {name: entry.make() for name, entry in self.config.methods.items()}

    def encoders(self, labels: Labels) -> list[str]:
        """The manifests of what a variant's method reads besides the model."""
        return self.assets([labels.variant])

    def assets(self, variants: Iterable[str]) -> list[str]:
        """The manifests of what the methods of variants read besides the model."""
        return sorted({manifest(asset) for name in variants for asset in self.methods[name].assets()})

    def modules(self, variants: Iterable[str]) -> list[str]:
        """The full names of the modules of the methods of variants."""
        entries = (self.config.methods[name] for name in variants)
        return [module for entry in entries for module in methods.modules(entry.method, entry.options)]
