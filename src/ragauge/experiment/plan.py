"""What the workflow makes for an experiment: which files an item is rendered from.

The rules ask this module; it knows no Snakemake.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.experiment.schema import Answers, Config
from ragauge.io.digest import digest

if TYPE_CHECKING:
    from ragauge.results.reads import Asked, Datasets, Kind, Reads

ANSWERS = "answers/{dataset}/{model}/{variant}.jsonl"  # paths below results/<run>
LATENCY = "latency/{dataset}/{model}.json"
JUDGEMENTS = "judgements/{dataset}/{model}/{variant}.jsonl"
TRAINING_DATA = "training/{training}/data/train.jsonl"
PREDICTIONS = "predictions.json"
PIPELINE = "pipelines/{pipeline}.jsonl"
RECALL = "databases/{database}/indexes/{index}/recall.json"
STALENESS = "staleness/{label}.json"


class Plan:
    """The jobs of an experiment and the files that they leave below `results`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.results = f"results/{config.run}"

    def item_inputs(self, item: str) -> dict[str, list[str]]:
        """The files that an item is rendered from, by what they are."""
        reads: Reads = registry.module("item", item).READS
        chosen = [Answers(one.dataset, one.model, one.variant) for one in reads.select(self._asked())]
        judged = set(self.config.judged()) if reads.judgements else ()
        pipelines = [label for label, entry in self.config.pipelines.items() if entry.schedule in reads.pipelines]
        inputs = {
            "answers": [ANSWERS.format(**job._asdict()) for job in chosen],
            "latency": [LATENCY.format(dataset=d, model=m) for d, m in self._timed(reads.latency)],
            "judgements": [JUDGEMENTS.format(**job._asdict()) for job in chosen if job in judged],
            "training": [TRAINING_DATA.format(training=t) for t in self.config.training if reads.training_data],
            "predictions": [PREDICTIONS] if reads.predictions else [],
            "pipelines": [PIPELINE.format(pipeline=label) for label in pipelines],
            "recall": list(dict.fromkeys(self._recall(pipelines))),
            "staleness": [STALENESS.format(label=label) for label in self.config.staleness if reads.staleness],
        }
        return {name: [f"{self.results}/{path}" for path in paths] for name, paths in inputs.items() if paths}

    def about(self, item: str) -> str:
        """What an item shows and what it does not: its file's docstring."""
        return (registry.module("item", item).__doc__ or item).strip()

    def title(self, item: str) -> str:
        """The first line of that."""
        return self.about(item).partition("\n")[0]

    def paper(self, item: str) -> str:
        """The paper that an item is of, which its folder names."""
        folder = registry.module_name("item", item).rpartition(".")[0]
        return str(getattr(importlib.import_module(folder), "PAPER", "All papers"))

    def item_code(self, item: str) -> str:
        """The digest of what turns records into an item. Metrics are found by name, so no import shows them."""
        metrics = (registry.module_name("metric", name) for name in registry.names("metric"))
        return digest(registry.module_name("item", item), "ragauge.rendering.writing", *metrics)

    def kind(self, dataset: str) -> Kind:
        """What questions a data set (a label) has."""
        from ragauge.datasets import Dataset

        found: Any = registry.component("dataset", self.config.datasets[dataset].dataset, Dataset)
        if found.long:
            return "long"
        return "multi_hop" if found.multi_hop else "single_hop"

    def _timed(self, datasets: Datasets | None) -> Iterator[tuple[str, str]]:
        from ragauge.results.reads import of_kind

        timed = self.config.timed() if datasets else ()
        yield from ((d, m) for d, m in timed if of_kind(self.kind(d), datasets or "any"))

    def _recall(self, pipelines: list[str]) -> Iterator[str]:
        """Of the indexes that pipelines ask, where their database holds text out to measure it with."""
        for entry in (self.config.pipelines[label] for label in pipelines):
            database = self.config.pipeline_database(entry)
            if entry.asks and self.config.databases[database].evaluation != "none":
                yield RECALL.format(database=database, index=entry.index)

    def _asked(self) -> Iterator[Asked]:
        """Every answer job as an item chooses from it."""
        from ragauge.results.reads import Asked
        from ragauge.results.runs import defaults

        for job in self.config.answers():
            entry, protocol = self.config.methods[job.variant], self.config.protocol(job.dataset)
            usual = defaults(entry.method)
            yield Asked(
                *job,
                method=entry.method,
                options={**usual, **entry.params},
                changed=[name for name, value in entry.params.items() if value != usual.get(name)],
                kind=self.kind(job.dataset),
                trained=bool(self.config.trainings(job.model)),
                timed=protocol is not None and job.variant in protocol.methods,
            )
