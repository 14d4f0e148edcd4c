"""Cross-checks of a configuration: its labels are defined, names and options exist, values fit
together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.assets import catalog, pins
from ragauge.assets.resolver import refuse_path, refuse_secret
from ragauge.config.model import SERVED
from ragauge.config.protocols import LatencySettings
from ragauge.errors import SettingError, UserError, unknown
from ragauge.methods.evidence.human_judgements import read_human_judgements
from ragauge.pipelines.settings import PipelineSettings, check_model
from ragauge.pipelines.windows import check_chunk_tokens
from ragauge.training.settings import ENDPOINT

if TYPE_CHECKING:
    from ragauge.config.experiment import Config
    from ragauge.pipelines.retrieval.settings import (
        DatabaseSettings,
        EvaluationSetSettings,
    )
    from ragauge.training.settings import TrainingSettings

AFFECTS_RESULTS = False

SOURCE_PREFIXES = ("hf:", "pypi:", "https://", "path:")


def refuse_braces(stated: Any, where: str = "") -> None:
    """Raise UserError if a path among stated values holds what Snakemake reads as a wildcard."""
    parts = stated.items() if isinstance(stated, Mapping) else ()
    for key, value in enumerate(stated) if isinstance(stated, list) else parts:
        refuse_braces(value, f"{where}.{key}".lstrip("."))
    has_braces = isinstance(stated, str) and re.search(r"\{\w", stated)
    if has_braces and glob(os.path.expanduser(stated.removeprefix("path:"))):
        raise UserError(
            f"{where}: {stated!r}: braces in a path are wildcards to Snakemake; rename it"
        )


def check(config: Config) -> None:
    """Raise UserError at the first mistake: `<path of the key>: what is wrong`."""
    for kind, names, choices, where in _references(config):
        for name in [names] if isinstance(names, str) else names or ():
            if name not in choices:
                raise unknown(kind, name, choices, where)
    _check_models(config)
    for label, training in config.training.items():
        check_training(training, f"training.{label}")
    _check_datasets(config)
    for job in {(job.variant, job.model): job for job in config.answers()}.values():
        config.method(job)
    for job in config.answers():
        is_sequential = config.methods[job.variant].instance.sequential()
        if is_sequential and config.datasets[job.dataset].jobs > 1:
            raise UserError(
                f"datasets.{job.dataset}.jobs: answers of {job.variant} depend on the questions "
                "before them, which other jobs would answer; leave it out"
            )
    for label, database in config.databases.items():
        check_database(database, f"databases.{label}")
    _check_evaluation_labels(config)
    for label, pipeline in config.pipelines.items():
        _check_pipeline(config, pipeline, f"pipelines.{label}")
        if pipeline.interleaved and len(config.interleaved(label)) < 2:
            raise UserError(
                f"pipelines.{label}.interleaved: "
                "no other interleaved pipeline differs in its schedule alone"
            )
    _check_scoring(config)
    for label, compared in config.staleness.items():
        check_source(compared.encoder, f"staleness.{label}.encoder", "encoder")
    _check_timed(config)
    if config.judge and config.judge.model != ENDPOINT:
        check_source(config.judge.model, "judge.model")
    _check_human_judgements(config)
    for item in config.item_names():
        unusable = registry.problem("item", item)
        if unusable:
            raise UserError(f"items: {unusable}")


# section -> key of its entries -> the section whose labels the key names; empty: components, of
# the kind that the key says
REFERENCES = {
    "models": {
        "training": "training",
        "finder": "models",
        "engine": "",
        "methods": "methods",
        "datasets": "datasets",
    },
    "datasets": {"dataset": ""},
    "methods": {"datasets": "datasets"},
    "pipelines": {"model": "models", "database": "databases"},
    "staleness": {"database": "databases"},
}
TIMED = {"dataset": "datasets", "methods": "methods", "models": "models"}
KINDS = {
    "models": "model",
    "datasets": "data set",
    "methods": "variant",
    "training": "training",
    "databases": "database",
}
# kind, names of it, known names, path of the key
Reference = tuple[str, str | list[str] | None, Any, str]


def _references(config: Config) -> Iterator[Reference]:
    """Every place where a name stands for a component or for another section's entry."""
    entries = [
        (f"{section}.{label}", entry, keys)
        for section, keys in REFERENCES.items()
        for label, entry in getattr(config, section).items()
    ]
    entries += [(where, section, TIMED) for where, section in config.timed_sections]
    if config.judge:
        entries.append(("judge", config.judge, {"methods": "methods"}))
    for where, entry, keys in entries:
        for key, section in keys.items():
            known = getattr(config, section) if section else registry.names(key)
            yield KINDS.get(section, key), getattr(entry, key), known, f"{where}.{key}"
    for section in ("pipelines", "staleness"):
        for label, reader in getattr(config, section).items():
            where = f"{section}.{label}"
            if not config.databases:
                raise UserError(f"{where}: needs a chunk database; name one under databases")
            name = config.pipeline_database(reader)
            database = config.databases[name]
            # the text that is predicted with a database: its held-out text or an evaluation set
            known = [name, *database.evaluation_sets]
            yield "evaluation set", reader.evaluation, known, f"{where}.evaluation"
            if section == "staleness" or reader.queries_index:
                yield "index", reader.index, database.indexes, f"{where}.index"
    yield "item", config.item_names(), registry.names("item"), "items"


def check_source(source: str, where: str, kind: str = "model") -> str:
    """A source as the catalog spells it.

    Raises:
        UserError: no such name of that kind, prefixed source or folder.
    """
    refuse_secret(source, where)
    if source.startswith(SERVED) and not os.path.exists(source):
        raise UserError(
            f"{where}: {source!r} is behind a server, but this needs the files of the {kind}; "
            "`ragauge run` and configurations do not"
        )
    try:
        pins.split_pin(source)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    known = [name for name, entry in catalog.entries().items() if entry.kind == kind]
    if not (
        catalog.spelled(source) in known
        or source.startswith(SOURCE_PREFIXES)
        or os.path.exists(source)
    ):
        refuse_path(source, f"{where}: ")
        choices = [*known, *(f"{prefix}..." for prefix in SOURCE_PREFIXES)]
        server = f"; behind a server: {SERVED}{source}" if where == "--model" else ""
        raise UserError(f"{unknown(kind, source, choices, where)}{server}")
    return catalog.spelled(source)


def check_training(training: TrainingSettings, where: str) -> None:
    """Raise UserError if a training's models or corpora are not available."""
    from ragauge.pipelines.database import corpus

    check_source(training.model, f"{where}.model")
    if training.writer != ENDPOINT:
        check_source(training.writer, f"{where}.writer")
    for source in training.corpora:
        corpus.check_source(source, f"{where}.corpora")


def check_database(database: DatabaseSettings, where: str) -> None:
    """Raise UserError if a database's sources do not exist."""
    from ragauge.pipelines.database import corpus

    check_source(database.tokenizer, f"{where}.tokenizer")
    check_source(database.encoder, f"{where}.encoder", "encoder")
    sets = {
        f"{where}.evaluation_sets.{label}": chosen
        for label, chosen in database.evaluation_sets.items()
    }
    for section, texts in {where: database, **sets}.items():
        for source in texts.sources:
            corpus.check_source(source, f"{section}.corpus")


def _check_models(config: Config) -> None:
    for label, model in config.models.items():
        where = f"models.{label}"
        if model.finder is not None:
            finder = config.models[model.finder]
            if finder.finder is not None:
                raise UserError(f"{where}.finder: {model.finder} has a finder itself")
            if finder.engine != model.engine:
                raise UserError(
                    f"{where}.finder: {model.finder} has engine {finder.engine!r}, not {model.engine!r}"
                )
        if not model.finder:
            config.trained_defaults(label).check(vars(model), where)
        if not model.served:
            check_source(model.source, f"{where}.source")
        elif model.served.tokenizer:
            check_source(model.served.tokenizer, f"{where}.served.tokenizer")


def _check_datasets(config: Config) -> None:
    for label, entry in config.datasets.items():
        where = f"datasets.{label}"
        try:
            dataset = config.dataset(label)
        except UserError as error:
            raise UserError(f"{where}.options: {error}") from error
        if entry.revision is not None and (entry.data or not dataset.repository()):
            raise UserError(
                f"{where}.revision: {entry.revision!r}: "
                "its file comes from no repository of the hub; pin it by sha256"
            )
        named = {"data": entry.data, "options.retrieved": entry.options.get("retrieved")}
        for key, path in named.items():
            if path is not None and not os.path.isfile(path):
                raise UserError(f"{where}.{key}: no such file: {path}")


def _check_pipeline(config: Config, pipeline: PipelineSettings, where: str) -> None:
    if pipeline.adapters and pipeline.engine == "onnx":
        raise UserError(
            f"{where}.adapters: not valid with engine 'onnx', which exports those of retrofit_minutes"
        )
    label = config.pipeline_model(pipeline)
    model = config.models[label]
    for key, needed in {"engine": "torch", "weights": "full", "kv": "full"}.items():
        value = getattr(model, key)
        if value != needed:
            raise UserError(
                f"{where}.model: {label} has {key} {value!r}; pipelines require {needed!r}"
            )
    if pipeline.schedule_class.reads_neighbours:
        database = config.pipeline_database(pipeline)
        check_chunk_tokens(config.databases[database].chunk_tokens, f"databases.{database}")
    try:
        check_model(pipeline, model.source, model.dtype, model.device)
    except SettingError as error:
        raise UserError(f"{where}.{error}") from None


def _check_scoring(config: Config) -> None:
    """All text of a run is scored alike: its perplexities stand in one table."""
    scored = [
        (label, pipeline.scoring)
        for label, pipeline in config.pipelines.items()
        if pipeline.task == "perplexity"
    ]
    for label, scoring in scored:
        first, its_scoring = scored[0]
        if scoring != its_scoring:
            raise UserError(
                f"pipelines.{label}.scoring: {scoring!r}, but pipelines.{first} has {its_scoring!r}"
            )


def _check_evaluation_labels(config: Config) -> None:
    """Raise UserError where two texts would have one label in tables: sets', or a set's and a
    database's. Sets with the same settings in several databases are one text.
    """
    texts: dict[str, tuple[str, EvaluationSetSettings | None]] = dict.fromkeys(
        config.databases, ("a database", None)
    )
    for label, database in config.databases.items():
        for name, settings in database.evaluation_sets.items():
            owner, text = texts.get(name, ("", settings))
            if text != settings:
                raise UserError(
                    f"databases.{label}.evaluation_sets.{name}"
                    f": {owner} already has this label, which names a text in tables"
                )
            texts[name] = f"a set of databases.{label}", settings


def _check_human_judgements(config: Config) -> None:
    """People judge what the configuration asks."""
    path = config.human_judgements
    jobs = set(config.answers())
    for place, judgement in read_human_judgements(Path(path)).items() if path else ():
        if (judgement.dataset, judgement.model, judgement.variant) not in jobs:
            raise UserError(
                f"{place}: model {judgement.model!r} does not answer data set {judgement.dataset!r}"
                f" with variant {judgement.variant!r}"
            )


def _check_timed(config: Config) -> None:
    for where, section in config.timed_sections:
        is_latency = isinstance(section, LatencySettings)
        for label in section.models or ():
            model = config.models[label]
            place = f"{where}.models: {label!r}"
            if model.finder and config.finds(section.methods) and not is_latency:
                raise UserError(f"{place} has a finder; only `latency` times such a pair")
            if model.engine != "torch" and (is_latency or not model.served):
                also = " here; `ragauge time` times served models" if model.served else ""
                raise UserError(
                    f"{place} has engine {model.engine!r}; only engine 'torch' can be timed{also}"
                )
            if model.datasets is not None and section.dataset not in model.datasets:
                raise UserError(f"{place} does not answer {section.dataset!r}")
        if is_latency and config.protocol(section.dataset) is not section:
            raise UserError(f"{where}.dataset: there is already a protocol for {section.dataset!r}")
