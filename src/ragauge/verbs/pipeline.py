"""Generate or score evaluation text with retrieval under one schedule; resumes an interrupted run."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.cost.hardware import AUTO, DTYPES
from ragauge.errors import SettingError, UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.experiment.schema import ModelEntry
    from ragauge.generation.pipeline import Pipeline, PipelineJob
    from ragauge.generation.readers import Checkpoint
    from ragauge.generation.settings import PipelineSettings
    from ragauge.io.specifications import IndexFacts, PipelineSpecification
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.fanout import Fanout

# Keys of a configuration that are labels, or that other options stand for.
ELSEWHERE = {
    "model",
    "database",
    "index",
    "engine",
    "retrieval_cores",
    "server",
    "server_threads",
    "server_cert",
    "server_key",
    "tls_ca",
    "token_file",
    "retrofit_minutes",
    "adapters",
    "weights",
}
CHOICES = {"schedule": registry.names("schedule"), "form": registry.names("form")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.generation.settings import PipelineSettings

    add = parser.add_argument
    options.add_config(parser, "a configuration; options override it")
    options.add_entry(parser, "pipelines")
    options.add_settings(parser, PipelineSettings, ELSEWHERE, **CHOICES)
    options.add_reader(parser)
    add("--dtype", default=AUTO, choices=(AUTO, *DTYPES), help="type of the decoder's weights and cache (auto)")
    options.add_device(parser)
    add("--onnx", type=Path, metavar="FOLDER", help="run the decoder that `ragauge export` wrote, with ONNX Runtime")
    options.add_database(parser, "the chunk database, with its held-out text")
    add("--index", metavar="LABEL", help="start a server of this index of the database for the run")
    options.add_server(parser, "use a running server; repeat for each part of an index", several=True)
    add("--server-file", type=Path, metavar="FILE", help="use the server whose address is written there; wait for it")
    options.add_access(parser)
    add("--deadline", type=float, default=30.0, metavar="SECONDS", help="time allowed for a retrieval (30)")
    add("--serve-options", default="", metavar="TEXT", help="options of `ragauge serve` for the server of --index")
    add("--seed", type=int, default=0, help="seed of random neighbours (0)")
    add("--overwrite", action="store_true", help="run every sequence again")
    add("--out", type=Path, required=True, metavar="FILE.jsonl")
    options.add_json(parser)


@dataclass(frozen=True)
class Chosen:
    """A pipeline as the configuration or the command line states it."""

    settings: PipelineSettings
    model: ModelEntry
    seed: int
    model_label: str
    database_label: str
    index: Path | None  # the folder of the index that is served for the run; None: a running server is asked
    serve_options: str
    served: IndexFacts | None = None  # what the running server's index is, as far as the configuration says it
    beside: Path | None = None  # the folder of the index that a job of the same run serves

    @property
    def evaluation(self) -> str | None:
        """The evaluation set that is read; None is the database's held-out text, which its own label names too."""
        return None if self.settings.evaluation == self.database_label else self.settings.evaluation


def run(args: argparse.Namespace) -> None:
    from ragauge.generation.settings import check_weights
    from ragauge.retrieval.service.cores import pin

    if bool(args.index) + bool(args.server) + bool(args.server_file) > 1:
        raise UserError("give --index or --server, or --server-file, not several")
    chosen = _configured(args) if args.config else _stated(args)
    try:
        check_weights(chosen.settings, chosen.model.source)
    except SettingError as error:
        raise UserError(f"--{error}") from None
    _use_servers(args, chosen.settings)
    asks = chosen.settings.asks
    if asks and not (chosen.index or args.server):
        known = "give --index or --server, or --server-file"
        raise UserError(f"--schedule: {chosen.settings.schedule!r} requires retrieval; {known}")
    chosen = _with_dtype(chosen, args.out)
    with ExitStack() as opened:
        if asks and chosen.index:  # before this process is pinned to cores, which its children inherit
            args.server = [_serve(chosen, opened)]
        if chosen.settings.cores:
            pin(chosen.settings.cores)
        _run(args, chosen, opened)


def _with_dtype(chosen: Chosen, out: Path) -> Chosen:
    """With the decoder's dtype settled, which may take a measurement: after all that is refused without one."""
    from ragauge.experiment.dtypes import with_dtype
    from ragauge.io.records import recorded_dtype

    allowed = ("float32",) if chosen.settings.engine == "onnx" else None
    return replace(chosen, model=with_dtype(chosen.model, recorded_dtype(out), allowed))


def _use_servers(args: argparse.Namespace, settings: PipelineSettings) -> None:
    """The servers of the settings, and what they require, where no option says otherwise."""
    args.server = args.server or settings.addresses
    for key in ("tls_ca", "token_file"):
        if getattr(args, key) is None and getattr(settings, key):
            setattr(args, key, Path(getattr(settings, key)))
    if args.server_file:
        from ragauge.retrieval.service.jobs import wait_for_server

        args.server = [wait_for_server(args.server_file, **options.access(args))]


def _index(args: argparse.Namespace) -> Path | None:
    """The folder of --index. A whole path, as the spelling of the version before has it, stays what it is."""
    return args.database / "indexes" / args.index if args.index else None


def _stated(args: argparse.Namespace) -> Chosen:
    """The pipeline of the options; labels are names of folders and sources."""
    from ragauge.experiment.checks import check_source
    from ragauge.experiment.reading import checked_options
    from ragauge.experiment.schema import ModelEntry
    from ragauge.generation.settings import PipelineSettings

    index = _index(args)
    files = {key: str(getattr(args, key)) for key in ("adapters", "weights") if getattr(args, key)}
    asked = {"index": index.name if index else "server", "engine": "onnx" if args.onnx else "torch"}
    made = {"schedule": "retro", **asked, **files}
    settings = checked_options(PipelineSettings, made | options.given(args, PipelineSettings, ELSEWHERE))
    check_source(args.model, "--model")
    model = ModelEntry(source=args.model, dtype=args.dtype, device=args.device)
    return Chosen(settings, model, args.seed, args.model, args.database.name, index, args.serve_options)


def _configured(args: argparse.Namespace) -> Chosen:
    """The pipeline of a configuration, overridden by the options."""
    from ragauge.experiment import loading
    from ragauge.experiment.reading import checked_options
    from ragauge.generation.specification import facts_of

    experiment = loading.load(args.config)
    label = options.label(experiment.pipelines, args.entry, "pipeline", f"{args.config}: pipelines")
    entry = experiment.pipelines[label]
    trained = bool(entry.retrofit_minutes or entry.adapters)
    for option, given, needed, key in (
        ("--adapters", args.adapters or entry.adapters, trained, "retrofit_minutes"),
        ("--onnx", args.onnx, entry.engine == "onnx", "engine"),
    ):
        if needed != (given is not None):
            verb = "requires" if needed else "does not take"
            raise UserError(f"--entry {label}: {verb} {option}; its {key} is {getattr(entry, key)}")
    settings = checked_options(type(entry), entry.model_dump() | options.given(args, type(entry), ELSEWHERE))
    model, database = experiment.pipeline_model(entry), experiment.pipeline_database(entry)
    running = bool(args.server or args.server_file or entry.server)
    folder = args.database / "indexes" / entry.index
    index = folder if entry.asks and not running else None
    beside = folder if entry.has_job and args.server_file else None
    vectors = experiment.databases[database]
    made = ["--encoder", vectors.encoder, "--engine", vectors.engine]
    made += ["--cores", entry.retrieval_cores] if entry.retrieval_cores else []
    recipe = experiment.databases[database].indexes[entry.index].model_dump() if entry.asks and running else None
    served = facts_of(entry.index, recipe, None) if recipe else None
    return Chosen(
        settings,
        experiment.models[model],
        experiment.seed,
        model,
        database,
        index,
        f"{shlex.join(made)} {args.serve_options}",
        served,
        beside,
    )


def _run(args: argparse.Namespace, chosen: Chosen, opened: ExitStack) -> None:
    """Everything that imports numerical libraries."""
    from ragauge.cost.machine import provenance
    from ragauge.generation import pipeline
    from ragauge.generation.evaluation import texts
    from ragauge.retrieval.database import Database

    database, settings = Database(args.database), chosen.settings
    adapters = args.adapters or (Path(settings.adapters) if settings.adapters else None)
    job = _job(args, chosen, database, adapters)
    about = {
        "provenance": provenance(),
        "cores": settings.cores,
        "database": database.counts,
        "specification": _specification(chosen, job.adapters_sha256).model_dump(),
    }
    with options.ended_in_order():
        out = pipeline.run(
            lambda: _make(args, chosen, job, adapters, database, opened),
            texts(database, settings.tokens, settings.limit, chosen.evaluation),
            job,
            args.out,
            overwrite=args.overwrite,
            about=about,
        )
    options.tell(args, out, out=out)


def _specification(chosen: Chosen, adapters_sha256: str | None) -> PipelineSpecification:
    """Every option resolved."""
    from ragauge.generation.specification import index_facts, specify
    from ragauge.io.specifications import IndexFacts

    settings, model = chosen.settings, chosen.model
    served = chosen.served or IndexFacts(label="server", type="server", settings={})
    here = chosen.index or chosen.beside
    index = index_facts(here) if here else served
    engine = {"dtype": model.dtype, "device": model.device, "threads": settings.threads, "cores": settings.cores}
    labels = {"model": chosen.model_label, "database": chosen.database_label}
    return specify(settings, **labels, index=index, engine=engine, adapters_sha256=adapters_sha256)


def _job(args: argparse.Namespace, chosen: Chosen, database: Any, adapters: Path | None) -> PipelineJob:
    from ragauge.generation.pipeline import PipelineJob
    from ragauge.generation.readers import Checkpoint, reader_of
    from ragauge.io.digest import digest
    from ragauge.io.files import file_sha256

    options.check_adapters(adapters)
    weights = Path(chosen.settings.weights) if chosen.settings.weights else None
    unread = Checkpoint(chosen.model.source, weights=weights, seed=chosen.seed)
    name, sha256 = reader_of(chosen.settings.form).origin(unread)
    return PipelineJob(
        chosen.settings,
        model=name,
        seed=chosen.seed,
        dtype=chosen.model.dtype,
        device=chosen.model.device,
        model_sha256=sha256,
        adapters_sha256=file_sha256(adapters) if adapters else None,
        database_sha256=database.sha256,
        evaluation_sha256=database.evaluation_set(chosen.evaluation).sha256 if chosen.evaluation else None,
        index=_index_identity(args, chosen) if chosen.settings.asks else None,
        code=digest(
            "ragauge.generation.pipeline",
            registry.module_name("schedule", chosen.settings.schedule),
            registry.module_name("form", chosen.settings.form),
        ),
    )


def _index_identity(args: argparse.Namespace, chosen: Chosen) -> str:
    """The hashes of what is searched, wherever it lies and whoever serves it."""
    from ragauge.io import folders
    from ragauge.retrieval.index import merged_folder
    from ragauge.retrieval.service.client import Client

    here = chosen.index or chosen.beside
    expected = folders.sha256(merged_folder(here.parent.parent, here.name)) if here else None
    if chosen.index and expected:
        return expected
    found = []
    for address in args.server:
        with Client(address, deadline_s=args.deadline, **options.access(args)) as client:
            found.append(client.describe().index)
    if expected and found != [expected]:
        raise UserError(f"{args.server[0]}: serves another index than {here}")
    return " ".join(found)


def _checkpoint(
    args: argparse.Namespace, source: str, job: PipelineJob, adapters: Path | None, database: Any
) -> Checkpoint:
    """The weights of the job, whose model has another name where a form has a model of its own."""
    from ragauge.generation.readers import Checkpoint

    return Checkpoint(
        source,
        job.model_sha256,
        job.dtype,
        job.device,
        job.settings.threads,
        adapters,
        job.adapters_sha256,
        exported=args.onnx,
        weights=Path(job.settings.weights) if job.settings.weights else None,
        seed=job.seed,
        vocabulary=database.vocabulary,
        tokenizer=database.tokenizer,
    )


def _make(
    args: argparse.Namespace, chosen: Chosen, job: PipelineJob, adapters: Path | None, database: Any, opened: ExitStack
) -> Pipeline:
    """The decoder, and the retriever that the schedule uses; `opened` stops a server that was started."""
    from ragauge.generation.evaluation import DatabaseChunks
    from ragauge.generation.pipeline import Pipeline

    checkpoint = _checkpoint(args, chosen.model.source, job, adapters, database)
    lm = job.form.load(checkpoint)
    database.check_tokenizer(lm.tokenizer, job.model)
    if not job.settings.asks:
        return Pipeline(lm, job, passages=DatabaseChunks(database))
    searcher = _retriever(args, database, opened)
    return Pipeline(lm, job, searcher, network_s=searcher.round_trip_s())


def _retriever(args: argparse.Namespace, database: Any, opened: ExitStack) -> Client | Fanout:
    """The server, or the servers of all parts at once; each must hold chunks of the database's tokenizer."""
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.fanout import Fanout

    clients = []
    for address in args.server:
        client = opened.enter_context(Client(address, deadline_s=args.deadline, **options.access(args)))
        if client.describe().tokenizer != database.manifest["tokenizer"]:
            raise UserError(f"{address}: serves chunks cut with a different tokenizer than {args.database}")
        clients.append(client)
    return clients[0] if len(clients) == 1 else Fanout(clients)


def _serve(chosen: Chosen, opened: ExitStack) -> str:
    from ragauge.retrieval.service.process import running

    assert chosen.index is not None
    return opened.enter_context(running(chosen.index, options=shlex.split(chosen.serve_options))).address
