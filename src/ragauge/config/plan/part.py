"""What the parts of a plan have in common, and the paths of a run's files, with labels in braces:
rules' wildcards.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from ragauge.config.experiment import Config

Labels = Any  # Snakemake's wildcards: each label of a job is an attribute
ASSET = "resources/assets/{asset}.json"  # a manifest: what the asset is, hash by hash
# Slurm's option for a whole node; a run on one machine keeps other jobs away by its cores
ALONE = "--exclusive"


class RunPaths:
    """The files and folders of a run, as patterns below the folder that Snakemake works in."""

    def __init__(self, run: str) -> None:
        self.results = results = f"results/{run}"
        self.reports = reports = f"reports/{run}"
        self.logs = f"logs/{run}"
        self.settings = f"{results}/config.yaml"
        self.machine = f"{results}/machine.json"
        self.predictions = f"{results}/predictions.json"
        self.provenance = f"{reports}/provenance.json"
        self.scores = f"{reports}/scores.csv"
        self.page = f"{reports}/index.html"

        self.data = f"{results}/data/{{dataset}}.jsonl"
        self.documents = f"{results}/documents"  # stored keys and values
        # records and .meta.json
        self.answers = f"{results}/answers/{{dataset}}/{{model}}/{{variant}}"
        # counted from 0
        self.part = f"{results}/parts/{{dataset}}/{{model}}/{{variant}}/{{part}}-of-{{jobs}}"
        self.latency = f"{results}/latency/{{dataset}}/{{model}}.json"
        self.load = f"{results}/load/{{dataset}}/{{model}}.json"
        self.stream = f"{results}/stream/{{dataset}}/{{model}}.json"
        self.judgements = f"{results}/judgements/{{dataset}}/{{model}}/{{variant}}.jsonl"

        self.training = f"{results}/training/{{training}}"  # data and checkpoints
        self.trained = f"{results}/models/{{training}}"

        self.database = f"{results}/databases/{{database}}"
        self.shard = f"{self.database}/shards/{{shard}}/manifest.json"
        self.cut = f"{self.database}/shards/cut"  # stands once all shards do
        self.evaluation_set = f"{self.database}/evaluation/{{evaluation}}/manifest.json"
        self.marked = f"{self.database}/near_duplicates/{{shard}}/manifest.json"
        self.embeddings = f"{self.database}/embeddings/{{shard}}/manifest.json"
        self.gathered = f"{self.database}/database/manifest.json"
        self.index = f"{self.database}/indexes/{{index}}"
        self.codes = f"{self.index}/shards/{{shard}}/manifest.json"
        self.merged = f"{self.index}/merged/manifest.json"
        self.recall = f"{self.index}/recall.json"
        self.database_logs = f"{self.logs}/databases/{{database}}"
        self.staleness = f"{results}/staleness/{{staleness}}.json"

        self.retrofit = f"{results}/retrofit/{{database}}/{{index}}/{{model}}/{{mode}}/{{minutes}}"
        self.adapters = f"{self.retrofit}/adapters.safetensors"
        self.export = f"{results}/onnx/{{export}}"
        self.pipeline = f"{results}/pipelines/{{pipeline}}"  # records and .meta.json
        # Where a server is a job of its own: who asks it, where, and what it and they wait for.
        # records and .meta.json, until the server has ended
        self.served = f"{results}/served/{{pipeline}}"
        self.server = f"{results}/servers/{{database}}/{{index}}"
        # stands once all is made that its pipelines read
        self.server_needs = f"{self.server}/needs"
        # the files that it is needed for, one a line
        self.server_clients = f"{self.server}/clients"
        self.server_address = f"{self.server}/address"
        self.server_ended = f"{self.server}/ended"


class PlanPart:
    """Some rules' jobs: their inputs, parameters and resources, as functions of a job's labels."""

    def __init__(self, config: Config, cores: int) -> None:
        self.config = config
        # of the run; on a cluster, where the run has none, of the node that the job is on
        self.cores = cores
        self.paths = RunPaths(config.run)

    def sources(self) -> Iterable[str]:
        return ()

    def value(self, path: str, labels: Labels) -> Any:
        """What stands in the configuration under keys and labels, as in
        `databases/{database}/encoder`.
        """
        value: Any = self.config
        names = {name: getattr(labels, name) for _, name, *_ in Formatter().parse(path) if name}
        for key in path.format(**names).split("/"):
            value = value[key] if isinstance(value, Mapping) else getattr(value, key)
        return value

    def entry(self, path: str, **chosen: set[str]) -> Callable[[Labels], dict[str, Any]]:
        """The settings of a job's entry, for a parameter. `chosen`: `include` or `exclude`, keys of
        the entry.
        """
        return lambda labels: dict(self.value(path, labels).model_dump(**chosen))

    def asset(self, path: str) -> Callable[[Labels], str]:
        """The manifest of an asset that a job's entry names."""
        return lambda labels: manifest(self.value(path, labels))

    def index_path(self, pattern: str) -> Callable[[Labels], str]:
        """A file or folder of the index that a pipeline, or a comparison of stale queries, is over,
        by its pattern.
        """

        def path(labels: Labels) -> str:
            label = getattr(labels, "pipeline", None)
            entry = (
                self.config.pipelines[label] if label else self.config.staleness[labels.staleness]
            )
            return pattern.format(
                database=entry.database or next(iter(self.config.databases)), index=entry.index
            )

        return path

    def model_of(self, labels: Labels) -> str:
        """The label of a job's model: its own, or its pipeline's."""
        pipeline = getattr(labels, "pipeline", None)
        return (
            self.config.pipeline_model(self.config.pipelines[pipeline])
            if pipeline
            else str(labels.model)
        )

    def gpus(self, labels: Labels) -> int:
        return self.config.gpus(self.model_of(labels))

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        """The memory of a job with a model; more in a further attempt."""
        return attempt * self.config.models[self.model_of(labels)].resources.mem_mb

    def runtime(self, labels: Labels) -> int:
        return self.config.models[self.model_of(labels)].resources.runtime

    def model_manifest(self, model: str) -> str:
        """Of a model (a label): the asset's, or that of the training that makes it."""
        entry = self.config.models[model]
        made = f"{self.paths.trained}.json".format(training=entry.training)
        return made if entry.training else manifest(entry.source)

    def model_manifests(self, model: str) -> list[str]:
        """Of the files that a model (a label) is read from: none of a served one but its
        tokenizer's, if it has any.
        """
        served = self.config.models[model].served
        if served is None:
            return [self.model_manifest(model)]
        return [manifest(served.tokenizer)] if served.tokenizer else []


def grown(mem_mb: int) -> Callable[..., int]:
    """Megabytes that grow with every attempt, for profiles that retry failed jobs."""

    return lambda wildcards, attempt: attempt * mem_mb


def filled(pattern: str) -> Callable[[Labels], str]:
    """A folder of a job: Snakemake's lint takes the text of a pattern for an input that is not
    declared.
    """
    return lambda labels: pattern.format(**dict(labels.items()))


def any_of(labels: Iterable[str]) -> str:
    """A pattern of these labels, for a wildcard; of nothing where there are none."""
    return "|".join(map(re.escape, labels)) or "(?!)"


def manifest(source: str) -> str:
    """The manifest of an asset; characters that are not allowed in file names become dashes."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in source)
    return ASSET.format(asset=name)
