"""Jobs about questions: the questions themselves, answers, latencies and judgements of evidence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge import datasets, methods, registry
from ragauge.experiment.plan.part import Labels, PlanPart, code_of, manifest
from ragauge.experiment.schema import LatencySettings, LoadSettings, StreamSettings
from ragauge.io.specifications import ACCESS
from ragauge.training.settings import ENDPOINT


class AnswerPlan(PlanPart):
    """Labels: dataset, model, variant, and of a part of the questions part and jobs."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        models = self.config.models.values()
        yield from (model.source for model in models if not (model.training or model.served))
        yield from (model.served.tokenizer for model in models if model.served and model.served.tokenizer)
        yield from (asset for label in self.config.datasets for asset in self.dataset_kind(label).assets)
        yield from (asset for name in self.config.methods for asset in self.assets(name))
        if self.config.judge and self._judge_is_here:
            yield self.config.judge.model

    # --- the questions ---

    def dataset_kind(self, dataset: str) -> type[datasets.Dataset]:
        """The class behind a data set's label."""
        return registry.component("dataset", self.config.datasets[dataset].dataset, datasets.Dataset)

    def dataset_file(self, labels: Labels) -> str | list[str]:
        """The official file that the configuration names, or the questions that the package ships; else nothing."""
        entry = self.config.datasets[labels.dataset]
        shipped = Path(os.path.relpath(datasets.__file__)).parent / "questions" / f"{entry.dataset}.jsonl"
        return entry.data or ([str(shipped)] if shipped.is_file() else [])

    def dataset_assets(self, labels: Labels) -> list[str]:
        """What a data set without a file of its own is made from."""
        named = not self.config.datasets[labels.dataset].data
        return [manifest(name) for name in self.dataset_kind(labels.dataset).assets if named]

    def dataset_settings(self, labels: Labels) -> dict[str, Any]:
        """What the questions depend on."""
        entry = self.config.datasets[labels.dataset]
        unset = {key for key in ("revision", "sha256") if getattr(entry, key) is None}
        kept = entry.model_dump(exclude={"limit", "max_new_tokens", "jobs"} | unset)
        return {**kept, "seed": self.config.dataset_seed(labels.dataset)}

    def dataset_code(self, labels: Labels) -> str:
        """The code that reads the official file and turns a record into a question."""
        dataset = registry.module_name("dataset", self.config.datasets[labels.dataset].dataset)
        return code_of("datasets._examples", components=[dataset])

    def labels_of_datasets(self, *, several_jobs: bool) -> str:
        """The data sets whose questions are dealt to several jobs, or to one, as a wildcard's pattern."""
        labels = [label for label, entry in self.config.datasets.items() if (entry.jobs > 1) == several_jobs]
        return "|".join(map(re.escape, labels)) or "(?!)"

    # --- models ---

    def models(self, labels: Labels) -> list[str]:
        """The manifests of a model and of the one that finds evidence for it."""
        finder = self.config.models[labels.model].finder
        return [path for model in (labels.model, finder) if model for path in self.model_manifests(model)]

    def model_settings(self, model: str) -> dict[str, Any]:
        """The settings of a model except where it is used."""
        entry = self.config.models[model]
        unset = {key for key in ("max_context", "finder") if getattr(entry, key) is None}
        unset |= {"engine"} if entry.engine == "torch" else set()
        unset |= {"served", "revision", "sha256"}  # the last two are part of the source
        settings = entry.model_dump(exclude={"training", "methods", "datasets", "resources"} | unset)
        finder = self.config.models.get(entry.finder or "")
        asked = {"served": entry.served.model_dump(exclude=ACCESS | {"price"})} if entry.served else {}
        return settings | asked | ({"finder": finder.model_dump(include={"source", "max_context"})} if finder else {})

    def gpus(self, labels: Labels) -> int:
        """Of a job with a model."""
        return self.config.gpus(labels.model)

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        """Of a job with a model; more in a further attempt."""
        return attempt * self.config.models[labels.model].resources.mem_mb

    def runtime(self, labels: Labels) -> int:
        """Minutes of a job with a model."""
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

    def encoders(self, labels: Labels) -> list[str]:
        """The manifests of what a variant's method reads besides the model."""
        return list(map(manifest, self.assets(labels.variant)))

    def settings(self, labels: Labels) -> dict[str, Any]:
        """Everything of the configuration that the records of a job depend on."""
        return {
            "model": self.model_settings(labels.model),
            "dataset": self.dataset_settings(labels),
            "variant": self._variant(labels.variant),
            "limit": self.config.limit(labels),
            "generation": {"max_new_tokens": self.config.max_new_tokens(labels.dataset)},
        }

    def code(self, labels: Labels) -> str:
        """What answers: the runner and the method."""
        engine = registry.module_name("engine", self.config.models[labels.model].engine)
        return code_of(
            "evaluation.inputs", "evaluation.runner", components=[*self._method_modules(labels.variant), engine]
        )

    # --- latency ---

    def latency_files(self) -> list[str]:
        """The times of every pair of data set and model that is timed."""
        return [self.paths.latency.format(dataset=dataset, model=model) for dataset, model in self.config.timed()]

    def latency_encoders(self, labels: Labels) -> list[str]:
        """The manifests of what the timed methods read besides the model."""
        return self._assets_of(self._protocol(labels).methods)

    def latency_settings(self, labels: Labels) -> dict[str, Any]:
        """Everything of the configuration that the times of a model on a data set depend on."""
        protocol = self._protocol(labels)
        unused = {key for key in ("more_new_tokens", "documents") if protocol.model_dump()[key] in ([], "ready")}
        unused.add("models")  # of whose labels each is a job of its own
        return {
            "model": self.model_settings(labels.model),
            "protocol": protocol.model_dump(exclude=unused),
            "variants": {name: self._variant(name) for name in protocol.methods},
        }

    def latency_code(self, labels: Labels) -> str:
        """What times, and what is timed."""
        return code_of("evaluation.latency", components=self._modules_of(self._protocol(labels).methods))

    # --- load ---

    def load_files(self) -> list[str]:
        """What was measured under load, of every pair of data set and model."""
        return [self.paths.load.format(dataset=dataset, model=model) for dataset, model in self.config.loaded()]

    def load_encoders(self, labels: Labels) -> list[str]:
        """The manifests of what the methods under load read besides the model."""
        return self._assets_of(self._load.methods)

    def load_settings(self, labels: Labels) -> dict[str, Any]:
        """Everything of the configuration that a model's times under load depend on."""
        return self._timed_settings(labels, self._load)

    def load_code(self, labels: Labels) -> str:
        """What sends requests, and what answers them."""
        return code_of("evaluation.load", components=self._modules_of(self._load.methods))

    # --- a stream ---

    def stream_files(self) -> list[str]:
        """What was measured on a stream of questions, of every pair of data set and model."""
        return [self.paths.stream.format(dataset=dataset, model=model) for dataset, model in self.config.streamed()]

    def stream_encoders(self, labels: Labels) -> list[str]:
        """The manifests of what the methods of a stream read besides the model."""
        return self._assets_of(self._stream.methods)

    def stream_settings(self, labels: Labels) -> dict[str, Any]:
        """Everything of the configuration that a model's times on a stream depend on."""
        return self._timed_settings(labels, self._stream)

    def stream_code(self, labels: Labels) -> str:
        """What asks the questions, and what answers them."""
        return code_of("evaluation.stream", components=self._modules_of(self._stream.methods))

    # --- judgements ---

    def judge(self, labels: Labels) -> str | list[str]:
        """The judge's manifest; nothing for the one behind the endpoint."""
        return manifest(self.config.judge.model) if self._judge_is_here and self.config.judge else []

    def judge_examples(self, labels: Labels) -> str | list[str]:
        """The questions with their passages, where answers are judged by them."""
        judged = self.config.judge is not None and self.config.judge.of == "answers"
        return self.paths.data.format(dataset=labels.dataset) if judged else []

    def judge_options(self, labels: Labels) -> list[str]:
        """What is judged, of how many questions, by which judge here; the environment describes an endpoint."""
        judge = self.config.judge
        if judge is None:
            return []
        some = [f"--limit={judge.limit}"] if judge.limit else []
        some += ["--of=answers", f"--examples={self.judge_examples(labels)}"] if judge.of == "answers" else []
        here = [f"--model={judge.model}", f"--dtype={judge.dtype}", f"--device={judge.device}"]
        return some + (here if self._judge_is_here else [])

    def judge_gpus(self, labels: Labels) -> int:
        return int(self.config.judge is not None and self._judge_is_here and self.config.judge.device == "cuda")

    # --- small print ---

    @property
    def _judge_is_here(self) -> bool:
        return self.config.judge is not None and self.config.judge.model != ENDPOINT

    def _protocol(self, labels: Labels) -> LatencySettings:
        protocol = self.config.protocol(labels.dataset)
        assert protocol is not None, labels.dataset  # only timed data sets have such a job
        return protocol

    @property
    def _load(self) -> LoadSettings:
        assert self.config.load is not None  # without a protocol there is no such job
        return self.config.load

    @property
    def _stream(self) -> StreamSettings:
        assert self.config.stream is not None  # without a section there is no such job
        return self.config.stream

    def _timed_settings(self, labels: Labels, protocol: LoadSettings | StreamSettings) -> dict[str, Any]:
        return {
            "model": self.model_settings(labels.model),
            "protocol": protocol.model_dump(),
            "variants": {name: self._variant(name) for name in protocol.methods},
            "seed": self.config.seed,
        }

    def _assets_of(self, variants: Iterable[str]) -> list[str]:
        return sorted({manifest(asset) for name in variants for asset in self.assets(name)})

    def _variant(self, name: str) -> dict[str, Any]:
        return self.config.methods[name].model_dump(exclude={"datasets", "limit"})

    def _method_modules(self, variant: str) -> list[str]:
        entry = self.config.methods[variant]
        return methods.modules(entry.method, methods.options(entry.method, **entry.params))

    def _modules_of(self, variants: Iterable[str]) -> list[str]:
        return [module for variant in variants for module in self._method_modules(variant)]

    def assets(self, variant: str) -> tuple[str, ...]:
        """What a variant's method reads besides the model: names of the catalog, or sources."""
        return self._assets[variant]

    @cached_property
    def _assets(self) -> dict[str, tuple[str, ...]]:
        variants = self.config.methods.items()
        return {name: methods.make(entry.method, **entry.params).assets() for name, entry in variants}
