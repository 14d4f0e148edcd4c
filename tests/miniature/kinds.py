"""The kinds of cells that an experiment plans: what of it differs by more than a number."""

from functools import cache

import yaml

from ragauge.config.loading import parse
from ragauge.methods.base import making


def laid_over(files):
    """Configurations one over the other as Snakemake merges them: mappings by their keys, all else
    as a whole.
    """
    from snakemake.utils import update_config

    merged = {}
    for file in files:
        update_config(merged, yaml.safe_load(file.read_text(encoding="utf-8")))
    return merged


@cache
def planned(*files):
    """The experiment of a configuration under its overlays."""
    return parse(laid_over(files), str(files[-1]))


def kinds(config):
    """Every kind of cell, the sections of the configuration first."""
    return {
        *_answers(config),
        *_timed(config),
        *_trained(config),
        *_retrieved(config),
        *_pipelines(config),
    } | {("item", name) for name in config.item_names()}


def _answers(config):
    judged = set(config.judged())
    for job in config.answers():
        variant = config.methods[job.variant]
        model = config.models[job.model]
        source = model.training or model.source  # that of a trained model is a folder of the run
        yield "answers", job.model, model.finder, source, job.dataset, _method(variant)
        if job in judged:
            yield (
                "judged",
                job.model,
                job.dataset,
                _method(variant),
                config.judge and config.judge.of,
            )


def _method(variant):
    """A method and its options other than numbers, which are swept."""
    changed = making.changed_options(variant.instance).items()
    return variant.method, *sorted((k, str(v)) for k, v in changed if type(v) not in (int, float))


def _timed(config):
    for dataset, model in config.measured("latency"):
        protocol = config.protocol(dataset)
        for name in protocol.methods if protocol else ():
            yield (
                "timed",
                dataset,
                model,
                _method(config.methods[name]),
                protocol and protocol.evidence_batch is None,
            )


def _trained(config):
    for label, training in config.training.items():
        yield (
            "training",
            label,
            training.model,
            training.writer,
            training.engine,
            training.processes > 1,
        )


def _retrieved(config):
    for label, database in config.databases.items():
        yield (
            "database",
            label,
            database.encoder,
            database.engine,
            database.tokenizer,
            database.evaluation,
        )
        for name, chosen in database.evaluation_sets.items():
            yield "evaluation set", label, name, chosen.part
        for name, index in database.indexes.items():
            yield "index", label, name, index.type, index.near_duplicates, index.shards is None
    for label, staleness in config.staleness.items():
        searched = staleness.database, staleness.index, staleness.nprobe is not None
        yield (
            "staleness",
            label,
            staleness.evaluation,
            *searched,
            staleness.encoder,
            staleness.engine,
        )


def _pipelines(config):
    for pipeline in config.pipelines.values():
        nprobe = "hide" if pipeline.hides_search else pipeline.nprobe is not None
        database = config.pipeline_database(pipeline), pipeline.index
        yield "text", pipeline.evaluation, pipeline.task, pipeline.schedule, nprobe
        reading = (
            pipeline.mode,
            pipeline.engine,
            pipeline.exclude,
            pipeline.retrofit_minutes is not None,
        )
        yield (
            "pipeline",
            *database,
            pipeline.task,
            pipeline.schedule,
            nprobe,
            pipeline.interval < 64,
            *reading,
        )
