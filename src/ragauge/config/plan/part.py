"""What the parts of a plan have in common, and the paths of a run's files, with labels in braces:
rules' wildcards.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from ragauge.config.experiment import AnswerJob, Config

Labels = Any  # Snakemake's wildcards: each label of a job is an attribute
ASSET = "resources/assets/{asset}.json"  # a manifest: what the asset is, hash by hash
# Slurm's option for a whole node; a run on one machine keeps other jobs away by its cores
ALONE = "--exclusive"


class RunPaths:
    """The files and folders of a run, as patterns below the folder that Snakemake works in."""

    results = "results/RUN"
    reports = "reports/RUN"
    logs = "logs/RUN"
    settings = "results/RUN/config.yaml"
    machine = "results/RUN/machine.json"
    predictions = "results/RUN/predictions.json"
    provenance = "reports/RUN/provenance.json"
    scores = "reports/RUN/scores.csv"
    page = "reports/RUN/index.html"

    data = "results/RUN/data/{dataset}.jsonl"
    documents = "results/RUN/documents"  # stored keys and values
    answers = "results/RUN/answers/{dataset}/{model}/{variant}"  # records and .meta.json
    # `part` is counted from 0
    part = "results/RUN/parts/{dataset}/{model}/{variant}/{part}-of-{jobs}"
    latency = "results/RUN/latency/{dataset}/{model}.json"
    load = "results/RUN/load/{dataset}/{model}.json"
    stream = "results/RUN/stream/{dataset}/{model}.json"
    judgements = "results/RUN/judgements/{dataset}/{model}/{variant}.jsonl"

    training = "results/RUN/training/{training}"  # data and checkpoints
    trained = "results/RUN/models/{training}"

    database = "results/RUN/databases/{database}"
    shard = "results/RUN/databases/{database}/shards/{shard}/manifest.json"
    cut = "results/RUN/databases/{database}/shards/cut"  # exists once all shards do
    evaluation_set = "results/RUN/databases/{database}/evaluation/{evaluation}/manifest.json"
    marked = "results/RUN/databases/{database}/near_duplicates/{shard}/manifest.json"
    embeddings = "results/RUN/databases/{database}/embeddings/{shard}/manifest.json"
    gathered = "results/RUN/databases/{database}/database/manifest.json"
    index = "results/RUN/databases/{database}/indexes/{index}"
    codes = "results/RUN/databases/{database}/indexes/{index}/shards/{shard}/manifest.json"
    merged = "results/RUN/databases/{database}/indexes/{index}/merged/manifest.json"
    recall = "results/RUN/databases/{database}/indexes/{index}/recall.json"
    database_logs = "logs/RUN/databases/{database}"
    staleness = "results/RUN/staleness/{staleness}.json"

    retrofit = "results/RUN/retrofit/{database}/{index}/{model}/{mode}/{minutes}"
    adapters = (
        "results/RUN/retrofit/{database}/{index}/{model}/{mode}/{minutes}/adapters.safetensors"
    )
    export = "results/RUN/onnx/{export}"
    pipeline = "results/RUN/pipelines/{pipeline}"  # records and .meta.json
    # Of a server that is a job of its own: records and .meta.json until it has ended, what it waits
    # for (all that its pipelines read), the files that it is needed for, one a line, its address,
    # and its end.
    served = "results/RUN/served/{pipeline}"
    server = "results/RUN/servers/{database}/{index}"
    server_needs = "results/RUN/servers/{database}/{index}/needs"
    server_clients = "results/RUN/servers/{database}/{index}/clients"
    server_address = "results/RUN/servers/{database}/{index}/address"
    server_ended = "results/RUN/servers/{database}/{index}/ended"

    def __init__(self, run: str) -> None:
        for name, pattern in vars(RunPaths).items():
            if isinstance(pattern, str) and not name.startswith("_"):
                setattr(self, name, pattern.replace("RUN", run, 1))

    def records(self, job: AnswerJob) -> str:
        """The file of the answers of a job."""
        return f"{self.answers}.jsonl".format(**job._asdict())


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
        """The value in the configuration under keys and labels, as in
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
        """The manifest of a model (a label): of its asset, or of the training that makes it."""
        entry = self.config.models[model]
        made = f"{self.paths.trained}.json".format(training=entry.training)
        return made if entry.training else manifest(entry.source)

    def model_manifests(self, model: str) -> list[str]:
        """The manifests of the files that a model (a label) is read from: of a served one its
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
