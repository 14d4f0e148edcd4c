"""Jobs of generation with retrieval: decoders that are trained to read neighbours, their exports,
and pipelines.
"""

from functools import cached_property

from ragauge import registry
from ragauge.assets import resolver
from ragauge.config.code import code_of
from ragauge.config.model import ModelEntry
from ragauge.config.plan.part import ALONE, Labels, PlanPart, any_of
from ragauge.cost.hardware import AUTO
from ragauge.io.files import text_sha256
from ragauge.pipelines.settings import PipelineSettings


class PipelinePlan(PlanPart):
    """Labels: pipeline; database, index, model, mode and minutes of a training; export."""

    def files(self) -> list[str]:
        return [
            f"{self.paths.pipeline}.jsonl".format(pipeline=label) for label in self.config.pipelines
        ]

    def label_pattern(self, job: bool) -> str:
        """Match the pipelines whose server is a job of its own, or the others that run alone."""
        return any_of(
            label
            for label, entry in self.config.pipelines.items()
            if entry.has_server_job == job and not entry.interleaved
        )

    def interleaved(self) -> list[list[str]]:
        """Return the labels of the pipelines that take turns, a list a job."""
        entries = self.config.pipelines.items()
        jobs = (self.config.interleaved(label) for label, entry in entries if entry.interleaved)
        return list({job[0]: job for job in jobs}.values())

    def index(self, labels: Labels) -> str | list[str]:
        """Return the index that is searched; empty if none is, or one behind a server that runs
        already.
        """
        entry = self._pipeline(labels)
        return (
            self.index_path(self.paths.merged)(labels)
            if entry.queries_index and not entry.addresses
            else []
        )

    def decoder(self, labels: Labels) -> str:
        return self.model_manifest(self.model_of(labels))

    def adapters(self, labels: Labels) -> str | list[str]:
        """Return the trained weights that neighbours are read with, if any."""
        return self._adapters(self._pipeline(labels)) or []

    def export(self, labels: Labels) -> str | list[str]:
        """Return the decoder as ONNX, where ONNX Runtime runs it."""
        entry = self._pipeline(labels)
        return (
            self.paths.export.format(export=self._export_name(entry))
            if entry.engine == "onnx"
            else []
        )

    def options(self, labels: Labels) -> list[str]:
        files = {"--adapters": self.adapters(labels), "--onnx": self.export(labels)}
        return [f"{option}={path}" for option, path in files.items() if path]

    def code(self, labels: Labels) -> str:
        """Digest of the code that runs a pipeline."""
        specification = self.config.pipeline_specification(self._pipeline(labels))
        return code_of("pipelines.pipeline", components=specification.component_modules)

    def specification(self, labels: Labels) -> list[str]:
        """Digest of everything of the configuration that the records depend on, of which texts, and
        how many.
        """
        entry = self._pipeline(labels)
        specification = self.config.pipeline_specification(entry)
        return [
            specification.digest,
            f"{entry.limit} sequences",
            f"of {entry.evaluation or specification.database}",
        ]

    def threads(self, labels: Labels) -> int:
        """Return all for timed jobs, but those of servers that are jobs; one that scores shares a
        core with its server.
        """
        entry = self._pipeline(labels)
        if entry.task != "generate":
            return entry.threads or 1
        return max(1, self.cores - self._server_threads)

    @cached_property
    def _server_threads(self) -> int:
        """Of all servers that are jobs."""
        return sum(map(self.config.server_threads, self.config.servers()))

    def node(self, labels: Labels) -> str:
        """Return a machine of its own for timed jobs."""
        return ALONE if self._pipeline(labels).task == "generate" else ""

    def retrofit_options(self, labels: Labels) -> list[str]:
        model = self.config.models[labels.model]
        return [f"--model={model.source}", f"--device={model.device}", f"--seed={self.config.seed}"]

    def retrofit_code(self, labels: Labels) -> str:
        """Digest of the code that trains a mode: its file is found by name, so no import shows it."""
        return code_of("training.fit", components=[registry.module_name("mode", labels.mode)])

    @cached_property
    def exports(self) -> dict[str, PipelineSettings]:
        """A pipeline of each export, by the export's name; those with the same weights share one."""
        entries = [entry for entry in self.config.pipelines.values() if entry.engine == "onnx"]
        return {self._export_name(entry): entry for entry in reversed(entries)}

    def export_names(self) -> str:
        """Return all exports, as a wildcard's constraint."""
        return any_of(self.exports)

    def export_inputs(self, labels: Labels) -> list[str]:
        """Return the files that an export is made from: trained weights, the decoder or a mode's
        own model and database.
        """
        entry = self.exports[labels.export]
        decoder = self.model_manifest(self.config.pipeline_model(entry))
        if not entry.mode_class.own_model:
            return [decoder, *filter(None, [self._adapters(entry)])]
        weights = [decoder] if resolver.is_retro(self._model(entry).source) else []
        return [self.paths.gathered.format(database=self.config.pipeline_database(entry)), *weights]

    def export_options(self, labels: Labels) -> list[str]:
        return self._export_options(self.exports[labels.export])

    def _export_options(self, entry: PipelineSettings) -> list[str]:
        model = self._model(entry)
        values = [f"--mode={entry.mode}"]
        if model.dtype not in (AUTO, "float32"):
            values.append(f"--dtype={model.dtype}")
        if not entry.mode_class.own_model:
            adapters = [f"--adapters={path}" for path in filter(None, [self._adapters(entry)])]
            return [*values, f"--model={model.source}", *adapters]
        origin = (
            f"--model={model.source}"
            if resolver.is_retro(model.source)
            else f"--seed={self.config.seed}"
        )
        folder = self.paths.database.format(database=self.config.pipeline_database(entry))
        return [*values, origin, f"--database={folder}"]

    def export_code(self, labels: Labels) -> str:
        mode = registry.module_name("mode", self.exports[labels.export].mode)
        return code_of(components=[mode])

    def export_mb(self, labels: Labels, attempt: int) -> int:
        """Weights in float32 twice: as they are read, and as they are written."""
        entry = self.exports[labels.export]
        least = 12000 if entry.mode_class.own_model else 6000
        return attempt * max(least, self._model(entry).resources.mem_mb)

    def _export_name(self, entry: PipelineSettings) -> str:
        """Return the mode, and a digest of all that the export is made from."""
        return f"{entry.mode}/{text_sha256(self._export_options(entry))[:12]}"

    def _adapters(self, entry: PipelineSettings) -> str:
        """Return the file of trained weights; empty without any."""
        if entry.adapters or not entry.retrofit_minutes:
            return entry.adapters or ""
        return self.paths.adapters.format(
            database=self.config.pipeline_database(entry),
            index=entry.index,
            model=self.config.pipeline_model(entry),
            mode=entry.mode,
            minutes=entry.retrofit_minutes,
        )

    def _pipeline(self, labels: Labels) -> PipelineSettings:
        return self.config.pipelines[labels.pipeline]

    def _model(self, entry: PipelineSettings) -> ModelEntry:
        return self.config.models[self.config.pipeline_model(entry)]
