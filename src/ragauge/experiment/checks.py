"""Cross-checks of a configuration: its labels are defined, names and options exist, values fit together."""

from __future__ import annotations

import os
from itertools import product
from typing import TYPE_CHECKING, Any

from ragauge import engines, registry
from ragauge.assets import pins
from ragauge.errors import SettingError, UserError, unknown
from ragauge.generation.settings import PipelineSettings, check_dtype, check_weights
from ragauge.training.settings import ENDPOINT

if TYPE_CHECKING:
    from ragauge.experiment.schema import Config, DatasetEntry, ModelEntry
    from ragauge.retrieval.settings import DatabaseSettings, EvaluationSetSettings
    from ragauge.training.settings import TrainingSettings

SOURCE_PREFIXES = ("hf:", "pypi:", "https://", "path:")


def check(config: Config) -> None:
    """Raise UserError at the first mistake: `<path of the key>: what is wrong`."""
    for label, model in config.models.items():
        _check_model(config, model, f"models.{label}")
    for label, training in config.training.items():
        check_training(training, f"training.{label}")
    for label, entry in config.datasets.items():
        _check_dataset(config, label, entry, f"datasets.{label}")
    _check_methods(config)
    _check_engines(config)
    for label, database in config.databases.items():
        check_database(database, f"databases.{label}")
    _check_evaluation_labels(config)
    for label, pipeline in config.pipelines.items():
        _check_pipeline(config, pipeline, f"pipelines.{label}")
    _check_servers(config)
    _check_staleness(config)
    _check_latency(config)
    _check_requests(config)
    _check_judge(config)
    for item in config.item_names():
        _known("item", item, registry.names("item"), "items")
        if unusable := registry.problem("item", item):
            raise UserError(f"items: {unusable}")


def check_source(source: str, where: str, kind: str = "model") -> str:
    """A source as the catalog spells it. Raises UserError: no name in it, no prefixed source, no folder.

    Args:
        kind: of the asset in the catalog, `model` or `encoder`.
    """
    from ragauge.assets import catalog, check_kept, refuse_path

    check_kept(source, where)
    check_pin(source, where)
    known = [name for name, entry in catalog.entries().items() if entry.kind == kind]
    if not (catalog.spelled(source) in known or source.startswith(SOURCE_PREFIXES) or os.path.exists(source)):
        refuse_path(source, f"{where}: ")
        raise unknown(kind, source, [*known, *(f"{prefix}..." for prefix in SOURCE_PREFIXES)], where)
    return catalog.spelled(source)


def check_pin(source: str, where: str) -> None:
    """Raise UserError if a source states a pin in a way that is none."""
    try:
        pins.parted(source)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def check_training(training: TrainingSettings, where: str) -> None:
    """Raise UserError if a training's models or corpora are not available."""
    from ragauge.retrieval import corpus

    check_source(training.model, f"{where}.model")
    if training.writer != ENDPOINT:
        check_source(training.writer, f"{where}.writer")
    for source in training.corpora:
        corpus.check_source(source, f"{where}.corpora")


def check_database(database: DatabaseSettings, where: str) -> None:
    """Raise UserError if a database's sources do not exist."""
    from ragauge.retrieval import corpus

    check_source(database.tokenizer, f"{where}.tokenizer")
    check_source(database.encoder, f"{where}.encoder", "encoder")
    for source in database.sources:
        corpus.check_source(source, f"{where}.corpus")
    for label, chosen in database.evaluation_sets.items():
        for source in chosen.sources:
            corpus.check_source(source, f"{where}.evaluation_sets.{label}.corpus")


def _check_model(config: Config, model: ModelEntry, where: str) -> None:
    if model.training is not None:
        _known("training", model.training, config.training, f"{where}.training")
    if model.finder is not None:
        _known("model", model.finder, config.models, f"{where}.finder")
        finder = config.models[model.finder]
        if finder.finder is not None:
            raise UserError(f"{where}.finder: {model.finder} has a finder itself")
        if finder.engine != model.engine:
            raise UserError(f"{where}.finder: {model.finder} has engine {finder.engine!r}, not {model.engine!r}")
    _known("engine", model.engine, registry.names("engine"), f"{where}.engine")
    _all_known("variant", model.methods, config.methods, f"{where}.methods")
    _all_known("data set", model.datasets, config.datasets, f"{where}.datasets")
    if not model.served:
        check_source(model.source, f"{where}.source")
    elif model.served.tokenizer:
        check_source(model.served.tokenizer, f"{where}.served.tokenizer")


def _check_dataset(config: Config, label: str, entry: DatasetEntry, where: str) -> None:
    _known("dataset", entry.dataset, registry.names("dataset"), f"{where}.dataset")
    try:
        dataset = config.dataset(label)
    except UserError as error:
        raise UserError(f"{where}.options: {error}") from error
    if entry.revision is not None and (entry.data or not dataset.repository()):
        told = f"{entry.revision!r}: its file comes from no repository of the hub; pin it by sha256"
        raise UserError(f"{where}.revision: {told}")
    if entry.data is not None and not os.path.isfile(entry.data):
        raise UserError(f"{where}.data: no such file: {entry.data}")


def _check_methods(config: Config) -> None:
    for name, variant in config.methods.items():
        where = f"methods.{name}"
        _known("method", variant.method, registry.names("method"), f"{where}.method")
        variant.make(where)
        _all_known("data set", variant.datasets, config.datasets, f"{where}.datasets")


def _check_engines(config: Config) -> None:
    for label, model in config.models.items():
        engines.check_quantization(model.engine, {"weights": model.weights, "kv": model.kv}, f"models.{label}")
    for job in {(job.variant, job.model): job for job in config.answers()}.values():
        config.method(job)


def _check_pipeline(config: Config, pipeline: PipelineSettings, where: str) -> None:
    if pipeline.model is not None:
        _known("model", pipeline.model, config.models, f"{where}.model")
    if pipeline.adapters and pipeline.engine == "onnx":
        raise UserError(f"{where}.adapters: not valid with engine 'onnx', which exports those of retrofit_minutes")
    model = config.pipeline_model(pipeline)
    if config.models[model].engine != "torch":
        raise UserError(f"{where}.model: {model} has engine {config.models[model].engine!r}; pipelines require 'torch'")
    chosen = config.models[model]
    for key, value in (("weights", chosen.weights), ("kv", chosen.kv)):
        if value != "full":
            raise UserError(f"{where}.model: {model} has {key} {value!r}; pipelines require 'full'")
    try:
        check_dtype(pipeline, config.models[model].dtype, config.models[model].device)
        check_weights(pipeline, config.models[model].source)
    except SettingError as error:
        raise UserError(f"{where}.{error}") from None
    if not config.databases:
        raise UserError(f"{where}: needs a chunk database; name one under databases")
    if pipeline.database is not None:
        _known("database", pipeline.database, config.databases, f"{where}.database")
    _check_evaluation(config, pipeline.evaluation, config.pipeline_database(pipeline), where)
    if pipeline.asks:
        indexes = config.databases[config.pipeline_database(pipeline)].indexes
        _known("index", pipeline.index, indexes, f"{where}.index")


def _check_servers(config: Config) -> None:
    """Pipelines that ask the same server, which is a job of its own, reach it by the same credentials."""
    for first, *others in config.servers().values():
        for label, key in product(others, ("server_cert", "server_key", "tls_ca", "token_file")):
            here, there = (getattr(config.pipelines[one], key) for one in (label, first))
            if here != there:
                raise UserError(
                    f"pipelines.{label}.{key}: {here!r}, but pipelines.{first}, which asks the same server, "
                    f"has {there!r}"
                )


def _check_staleness(config: Config) -> None:
    for name, compared in config.staleness.items():
        where = f"staleness.{name}"
        _known("database", compared.database, config.databases, f"{where}.database")
        _known("index", compared.index, config.databases[compared.database].indexes, f"{where}.index")
        _check_evaluation(config, compared.evaluation, compared.database, where)
        check_source(compared.encoder, f"{where}.encoder", "encoder")


def _check_evaluation_labels(config: Config) -> None:
    """Raise UserError where two texts would have one label in tables: sets', or a set's and a database's.

    A set that is stated alike for several databases is one text.
    """
    texts: dict[str, EvaluationSetSettings] = {}
    owners = dict.fromkeys(config.databases, "a database")
    for label, database in config.databases.items():
        for name, stated in database.evaluation_sets.items():
            where = f"databases.{label}.evaluation_sets.{name}"
            if name in owners and texts.get(name) != stated:
                raise UserError(f"{where}: {owners[name]} already has this label, which names a text in tables")
            owners[name], texts[name] = f"a set of databases.{label}", stated


def _check_evaluation(config: Config, chosen: str | None, database: str, where: str) -> None:
    """Raise UserError unless a text is an evaluation set of the database, or what is held out of it."""
    if chosen is not None:
        known = [database, *config.databases[database].evaluation_sets]
        _known("evaluation set", chosen, known, f"{where}.evaluation")


def _check_latency(config: Config) -> None:
    for where, protocol in config.placed_protocols():
        _known("data set", protocol.dataset, config.datasets, f"{where}.dataset")
        _all_known("variant", protocol.methods, config.methods, f"{where}.methods")
        for label in protocol.models or ():
            _known("model", label, config.models, f"{where}.models")
            _check_timed(label, config.models[label], protocol.dataset, f"{where}.models")
        if config.protocol(protocol.dataset) is not protocol:
            raise UserError(f"{where}.dataset: there is already a protocol for {protocol.dataset!r}")


def _check_timed(label: str, model: ModelEntry, dataset: str, where: str) -> None:
    """Raise UserError if the latency protocol cannot time a model that it names."""
    if model.finder is not None:
        raise UserError(
            f"{where}: {label!r} has a finder; name {model.finder!r} instead, which finds evidence in the same time"
        )
    if model.engine != "torch":
        raise UserError(f"{where}: {label!r} has engine {model.engine!r}; only engine 'torch' can be timed")
    if model.datasets is not None and dataset not in model.datasets:
        raise UserError(f"{where}: {label!r} is not asked {dataset!r}")


def _check_requests(config: Config) -> None:
    for where, section in (("load", config.load), ("stream", config.stream)):
        if section:
            _known("data set", section.dataset, config.datasets, f"{where}.dataset")
            _all_known("variant", section.methods, config.methods, f"{where}.methods")


def _check_judge(config: Config) -> None:
    if config.judge is None:
        return
    _all_known("variant", config.judge.methods, config.methods, "judge.methods")
    if config.judge.model != ENDPOINT:
        check_source(config.judge.model, "judge.model")


def _known(what: str, value: str, choices: Any, where: str) -> None:
    if value not in choices:
        raise unknown(what, value, choices, where)


def _all_known(what: str, values: list[str] | None, choices: Any, where: str) -> None:
    for value in values or ():
        _known(what, value, choices, where)
