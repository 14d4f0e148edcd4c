"""Jobs of generation with retrieval: decoders that are trained to read neighbours, their exports, and pipelines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ragauge import assets, registry
from ragauge.cost.hardware import AUTO
from ragauge.experiment.plan.part import ALONE, Labels, PlanPart, code_of
from ragauge.experiment.schema import ModelEntry
from ragauge.generation import readers
from ragauge.generation.settings import PipelineSettings
from ragauge.io.files import text_sha256

UNTRAINED = "untrained"  # weights of an export
RANDOM = "random"  # checkpoint of an export of a form's own model


class PipelinePlan(PlanPart):
    """Labels: pipeline; database, index, model, form and minutes of a training; weights or checkpoint of an export."""

    # --- pipelines ---

    def files(self) -> list[str]:
        """The records of every pipeline."""
        return [f"{self.paths.pipeline}.jsonl".format(pipeline=label) for label in self.config.pipelines]

    def labels(self, job: bool) -> str:
        """Those whose server is a job of its own, or the others, as a wildcard's constraint."""
        found = [re.escape(label) for label, entry in self.config.pipelines.items() if entry.has_job == job]
        return "|".join(found) or "(?!)"

    def folder(self, labels: Labels) -> str:
        return self.paths.database.format(database=self._database(labels))

    def database(self, labels: Labels) -> str:
        return self.paths.gathered.format(database=self._database(labels))

    def index(self, labels: Labels) -> str | list[str]:
        """The index that is asked; nothing if none is, or one behind a server that runs already."""
        entry = self._pipeline(labels)
        made_here = entry.asks and not entry.addresses
        return self.paths.merged.format(database=self._database(labels), index=entry.index) if made_here else []

    def decoder(self, labels: Labels) -> str:
        return self.model_manifest(self.config.pipeline_model(self._pipeline(labels)))

    def adapters(self, labels: Labels) -> str | list[str]:
        """What neighbours are read with, where that was trained."""
        entry = self._pipeline(labels)
        if entry.adapters:
            return entry.adapters
        trained = self.paths.adapters.format(
            database=self._database(labels),
            index=entry.index,
            model=self.config.pipeline_model(entry),
            form=entry.form,
            minutes=entry.retrofit_minutes,
        )
        return trained if entry.retrofit_minutes else []

    def export(self, labels: Labels) -> str | list[str]:
        """The decoder as ONNX, where that runs it."""
        entry, database = self._pipeline(labels), self._database(labels)
        if entry.engine != "onnx":
            return []
        if entry.reader.own_model:
            return self.paths.export_own.format(form=entry.form, database=database, checkpoint=self._checkpoint(entry))
        weights = f"{database}/{entry.index}/{entry.retrofit_minutes}" if entry.retrofit_minutes else UNTRAINED
        return self.paths.export.format(form=entry.form, model=self.config.pipeline_model(entry), weights=weights)

    def options(self, labels: Labels) -> list[str]:
        given = {"--adapters": self.adapters(labels), "--onnx": self.export(labels)}
        return [f"{option}={path}" for option, path in given.items() if path]

    def code(self, labels: Labels) -> str:
        """What runs a pipeline. Schedules and readers are found by their names, so no import shows them."""
        entry = self._pipeline(labels)
        found = registry.module_name("schedule", entry.schedule), registry.module_name("form", entry.form)
        return code_of("verbs.pipeline", components=found)

    def settings(self, labels: Labels) -> dict[str, Any]:
        """Everything of the configuration that the records depend on, but for how many there are."""
        entry, model = self._pipeline(labels), self._model(labels)
        return {"pipeline": entry.model_dump(), "model": model.model_dump(), "seed": self.config.seed}

    def threads(self, labels: Labels) -> int:
        """All for what is timed, but those of servers that are jobs; one that scores shares a core with its server."""
        entry = self._pipeline(labels)
        if entry.task != "generate":
            return entry.threads or 1
        return max(1, self.cores - sum(map(self.config.server_threads, self.config.servers())))

    def node(self, labels: Labels) -> str:
        """A machine of its own for what is timed."""
        return ALONE if self._pipeline(labels).task == "generate" else ""

    def gpus(self, labels: Labels) -> int:
        return self.config.gpus(self.config.pipeline_model(self._pipeline(labels)))

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        return attempt * self._model(labels).resources.mem_mb

    def runtime(self, labels: Labels) -> int:
        """Minutes."""
        return self._model(labels).resources.runtime

    # --- decoders that read neighbours ---

    def retrofit_decoder(self, labels: Labels) -> str:
        return self.model_manifest(labels.model)

    def retrofit_folder(self, labels: Labels) -> str:
        names = ("database", "index", "model", "form", "minutes")
        return self.paths.retrofit.format(**{name: getattr(labels, name) for name in names})

    def retrofit_options(self, labels: Labels) -> list[str]:
        model = self.config.models[labels.model]
        return [f"--model={model.source}", f"--device={model.device}", f"--seed={self.config.seed}"]

    def retrofit_gpus(self, labels: Labels) -> int:
        return self.config.gpus(labels.model)

    def retrofit_code(self, labels: Labels) -> str:
        """What trains a form: its file is found by its name, so no import shows it."""
        return code_of("verbs.retrofit", components=[registry.module_name("trainable form", labels.form)])

    # --- exports ---

    @staticmethod
    def forms(own_model: bool) -> str:
        """The forms that are exported with a model of their own, or over a decoder, as a wildcard's constraint."""
        return "|".join(form for form in readers.run_by("onnx") if bool(readers.kind(form).own_model) == own_model)

    def export_code(self, labels: Labels) -> str:
        """What exports a form."""
        return code_of("verbs.export", components=[registry.module_name("form", labels.form)])

    def export_adapters(self, labels: Labels) -> str | list[str]:
        """What `weights` names."""
        if labels.weights == UNTRAINED:
            return []
        database, index, minutes = labels.weights.split("/")
        return self.paths.adapters.format(
            database=database, index=index, model=labels.model, form=labels.form, minutes=minutes
        )

    def export_options(self, labels: Labels) -> list[str]:
        adapters = self.export_adapters(labels)
        model = self.config.models[labels.model]
        given = [f"--model={model.source}", *_in(model.dtype)]
        return [*given, f"--adapters={adapters}"] if adapters else given

    def export_mb(self, labels: Labels, attempt: int) -> int:
        """Weights in float32 twice: as they are read, and as they are written."""
        return attempt * max(6000, self.config.models[labels.model].resources.mem_mb)

    def own_weights(self, labels: Labels) -> str | list[str]:
        """What the weights that a checkpoint's name is of are read from; nothing for random ones."""
        entry = self._exported(labels)
        if entry.weights:
            return entry.weights
        model = self.config.pipeline_model(entry)
        return self.model_manifest(model) if assets.is_retro(self.config.models[model].source) else []

    def export_own_options(self, labels: Labels) -> list[str]:
        entry = self._exported(labels)
        model = self.config.models[self.config.pipeline_model(entry)]
        if entry.weights:
            return [f"--weights={entry.weights}", *_in(model.dtype)]
        made = f"--model={model.source}" if assets.is_retro(model.source) else f"--seed={self.config.seed}"
        return [made, *_in(model.dtype)]

    # --- small print ---

    def _exported(self, labels: Labels) -> PipelineSettings:
        """A pipeline that an export of a form's own model is for."""
        own = [entry for entry in self.config.pipelines.values() if entry.form == labels.form]
        return next(entry for entry in own if self._checkpoint(entry) == labels.checkpoint)

    def _checkpoint(self, entry: PipelineSettings) -> str:
        """What an export of a form's own model is called."""
        label = self.config.pipeline_model(entry)
        model = self.config.models[label]
        name = label if assets.is_retro(model.source) else RANDOM
        if entry.weights:
            name = f"{Path(entry.weights).name}-{text_sha256(entry.weights)[:8]}"  # other folders have such files
        return "-".join([name, *(option.removeprefix("--dtype=") for option in _in(model.dtype))])

    def _pipeline(self, labels: Labels) -> PipelineSettings:
        return self.config.pipelines[labels.pipeline]

    def _database(self, labels: Labels) -> str:
        return self.config.pipeline_database(self._pipeline(labels))

    def _model(self, labels: Labels) -> ModelEntry:
        return self.config.models[self.config.pipeline_model(self._pipeline(labels))]


def _in(dtype: str) -> list[str]:
    """The option of an export for what a model is run in; `auto` is float32 there."""
    return [] if dtype in (AUTO, "float32") else [f"--dtype={dtype}"]
