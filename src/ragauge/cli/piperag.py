"""PipeRAG: generation with retrieval, the training and the export of decoders that read neighbours,
stale queries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge import registry
from ragauge.assets.store import has_manifest
from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.config.checks import check_source
from ragauge.config.dtypes import with_dtype
from ragauge.config.model import ModelEntry
from ragauge.config.reading import checked_options
from ragauge.cost.hardware import AUTO, DTYPES, ONNX_DTYPES
from ragauge.errors import SettingError, UserError
from ragauge.io import folders
from ragauge.io.files import file_sha256
from ragauge.io.specifications import IndexFacts
from ragauge.pipelines import modes
from ragauge.pipelines.retrieval.settings import StalenessSettings
from ragauge.pipelines.settings import PipelineSettings, check_model
from ragauge.training.settings import RetrofitSettings

if TYPE_CHECKING:
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.pipeline import Pipeline
    from ragauge.pipelines.specification import PipelineSpecification

STEPS = {
    "run": "generate or score evaluation text with retrieval under one schedule; resumes an interrupted run",
    "staleness": "compare the neighbours of stale and of fresh queries over held-out text (PipeRAG, Table 2)",
    "retrofit": "train a frozen decoder to use retrieved neighbours (RETRO-fit); resumes an interrupted run",
    "export": "export a decoder that reads neighbours, or RETRO, to ONNX for `ragauge piperag run --onnx`",
}
DATABASE = ("database",)  # a key of a comparison that is an option of another meaning
# Keys of a configuration that are labels, or that other options stand for.
NO_OPTIONS = {
    *(
        "model",
        "database",
        "index",
        "engine",
        "retrieval_cores",
        "retrofit_minutes",
        "adapters",
        "weights",
    ),
    *("server", "server_threads", "server_cert", "server_key", "tls_ca", "tls_name", "token_file"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own = (
        (_add_run, run),
        (_add_staleness, _compare),
        (_add_retrofit, _train),
        (_add_export, _export),
    )
    for (_, step), (add, work) in zip(options.add_steps(parser, STEPS), own, strict=True):
        add(step)
        step.set_defaults(verb=work)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    choices = {key: registry.names(key) for key in ("schedule", "mode")}
    options.add_config(parser, "a configuration; options override it")
    options.add_entry(parser, "pipelines")
    options.add_settings(parser, PipelineSettings, NO_OPTIONS, **choices)
    options.add_reader(parser)
    add(
        "--dtype",
        default=AUTO,
        choices=(AUTO, *DTYPES),
        help="type of the decoder's weights and cache (auto)",
    )
    options.add_device(parser)
    add(
        "--onnx",
        type=Path,
        metavar="FOLDER",
        help="run the decoder of `ragauge piperag export` with ONNX Runtime",
    )
    options.add_database(parser, "the chunk database, with its held-out text")
    add("--index", metavar="LABEL", help="start a server of this index of the database for the run")
    options.add_server(
        parser, "use a running server; repeat for each part of an index", action="append"
    )
    add(
        "--server-file",
        type=Path,
        metavar="FILE",
        help="use the server whose address is written there; wait for it",
    )
    options.add_access(parser)
    add(
        "--deadline",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time allowed for a retrieval (30)",
    )
    add("--seed", type=int, default=0, help="seed of random neighbours (0)")
    add("--overwrite", action="store_true", help="run every sequence again")
    add("--out", type=Path, required=True, metavar="FILE.jsonl")


@dataclass(frozen=True)
class Plan:
    """A pipeline as the configuration or the command line states it."""

    settings: PipelineSettings  # with the labels of its model and database
    model: ModelEntry
    index: Path | None  # the folder of the index, where it is on this machine's disks
    starts_server: bool  # of that index, for the run; False: a running server is queried
    stated_index: IndexFacts | None  # the index, as far as the configuration says
    serve_options: Sequence[str] = ()  # of `ragauge serve` for the server that is started

    @property
    def evaluation(self) -> str | None:
        """The evaluation set; None is the database's held-out text, which its own label names too."""
        return (
            None if self.settings.evaluation == self.settings.database else self.settings.evaluation
        )

    @property
    def index_facts(self) -> IndexFacts | None:
        """The index that is searched: as it is on disk, with the configuration's nprobe, which does
        not rebuild it.
        """
        from ragauge.pipelines.specification import index_facts

        if not self.index:
            return self.stated_index
        facts = index_facts(self.index)
        stated = self.stated_index
        return (
            facts.model_copy(update={"nprobe": stated.nprobe})
            if stated and stated.nprobe
            else facts
        )


def run(args: argparse.Namespace) -> None:
    """Score or continue every sequence that --out does not have yet."""
    from ragauge.io.records import recorded_dtype

    if bool(args.index) + bool(args.server) + bool(args.server_file) > 1:
        raise UserError("give --index or --server, or --server-file, not several")
    plan = _from_configuration(args) if args.config else _from_options(args)
    settings = plan.settings
    model = plan.model
    try:
        check_model(settings, model.source, model.dtype, model.device)
    except SettingError as error:
        raise UserError(f"--{error}") from None
    options.check_adapters(args.adapters)
    args.server = args.server or settings.addresses
    args.tls_name = args.tls_name or settings.tls_name
    for key in ("tls_ca", "token_file"):
        if getattr(args, key) is None and getattr(settings, key):
            setattr(args, key, Path(getattr(settings, key)))
    if args.server_file:
        from ragauge.pipelines.service.jobs import wait_for_server

        args.server = [wait_for_server(args.server_file, **options.access(args))]
    if settings.asks_index and not (plan.starts_server or args.server):
        known = "give --index or --server, or --server-file"
        raise UserError(f"--schedule: {settings.schedule!r} requires retrieval; {known}")
    # may measure dtypes: after all that is refused without a measurement
    allowed = ("float32",) if settings.engine == "onnx" else None
    plan = replace(plan, model=with_dtype(model, recorded_dtype(args.out), allowed))
    with ExitStack() as opened:
        # before this process is pinned to cores, which its children inherit
        if plan.starts_server and plan.index:
            from ragauge.pipelines.service.process import running

            started = opened.enter_context(running(plan.index, options=plan.serve_options))
            args.server = [started.address]
        if settings.cores:
            from ragauge.pipelines.service.cores import pin

            pin(settings.cores)
        _score(args, plan, opened)


def _from_options(args: argparse.Namespace) -> Plan:
    """The pipeline of the options; labels are names of folders and sources."""
    stated = {key: str(getattr(args, key)) for key in ("adapters", "weights") if getattr(args, key)}
    stated |= {"model": args.model, "database": args.database.name, "index": args.index or "server"}
    stated |= {"schedule": "retro", "engine": "onnx" if args.onnx else "torch"}
    settings = checked_options(
        PipelineSettings, stated | options.given(args, PipelineSettings, NO_OPTIONS)
    )
    check_source(args.model, "--model")
    model = ModelEntry(source=args.model, dtype=args.dtype, device=args.device)
    index = args.database / "indexes" / args.index if args.index else None
    starts_server = settings.asks_index and bool(args.index)
    return Plan(
        settings,
        model,
        index,
        starts_server,
        IndexFacts(label="server", type="server", settings={}),
    )


def _from_configuration(args: argparse.Namespace) -> Plan:
    """The pipeline of a configuration, overridden by the options; its seed goes to `args`."""
    from ragauge.pipelines.specification import facts_of

    experiment = loading.load(args.config)
    label = options.label(experiment.pipelines, args.entry, "pipeline", f"{args.config}: pipelines")
    entry = experiment.pipelines[label]
    args.seed, args.adapters = (
        experiment.seed,
        args.adapters or (Path(entry.adapters) if entry.adapters else None),
    )
    needed = {
        "adapters": bool(entry.retrofit_minutes or entry.adapters),
        "onnx": entry.engine == "onnx",
    }
    for option, is_needed in needed.items():
        if is_needed != (getattr(args, option) is not None):
            raise UserError(
                f"--entry {label}: {'requires' if is_needed else 'does not take'} --{option}"
            )
    model = experiment.pipeline_model(entry)
    database = experiment.pipeline_database(entry)
    stated = entry.model_dump() | {"model": model, "database": database}
    settings = checked_options(type(entry), stated | options.given(args, type(entry), NO_OPTIONS))
    recipes = experiment.databases[database]
    made = ["--encoder", recipes.encoder, "--engine", recipes.engine]
    made += ["--cores", entry.retrieval_cores] if entry.retrieval_cores else []
    is_remote = bool(args.server or args.server_file or entry.server)
    is_on_disk = not is_remote or bool(entry.has_server_job and args.server_file)
    index = args.database / "indexes" / entry.index if entry.asks_index and is_on_disk else None
    facts = (
        facts_of(entry.index, recipes.indexes[entry.index].model_dump(), None)
        if entry.asks_index
        else None
    )
    return Plan(
        settings, experiment.models[model], index, entry.asks_index and not is_remote, facts, made
    )


def _score(args: argparse.Namespace, plan: Plan, opened: ExitStack) -> None:
    from ragauge.cost.machine import provenance
    from ragauge.io.digest import digest
    from ragauge.pipelines import pipeline
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.evaluation import texts
    from ragauge.pipelines.specification import modules_of, specify

    settings = plan.settings
    database = Database(args.database)
    facts = plan.index_facts
    checkpoint = modes.Checkpoint(
        plan.model.source,
        dtype=plan.model.dtype,
        device=plan.model.device,
        threads=settings.threads,
        adapters=args.adapters,
        exported=args.onnx,
        adapters_sha256=file_sha256(args.adapters) if args.adapters else None,
        weights=Path(settings.weights) if settings.weights else None,
        seed=args.seed,
        vocabulary=database.vocabulary,
        tokenizer=database.tokenizer,
    )
    name, sha256 = modes.make(settings.mode, {}).origin(checkpoint)
    checkpoint = replace(checkpoint, sha256=sha256)
    specification = specify(
        settings,
        model=str(settings.model),
        database=str(settings.database),
        index=facts,
        source=name,
        dtype=plan.model.dtype,
        device=plan.model.device,
        seed=args.seed,
        model_sha256=sha256,
        adapters_sha256=checkpoint.adapters_sha256,
        database_sha256=database.sha256,
        evaluation_sha256=database.evaluation_set(plan.evaluation).sha256
        if plan.evaluation
        else None,
        index_sha256=_index_sha256(args, plan) if settings.asks_index else None,
        code=digest(
            "ragauge.pipelines.pipeline", *modules_of(settings, facts.type if facts else None)
        ),
    )
    is_published = settings.task == "perplexity" and settings.scoring == "published"
    with options.ended_in_order():
        out = pipeline.run(
            lambda: _make(args, plan, checkpoint, specification, database, opened),
            texts(
                database, settings.tokens, settings.limit, plan.evaluation, published=is_published
            ),
            specification,
            args.out,
            overwrite=args.overwrite,
            about={"provenance": provenance(), "database": database.counts},
        )
    options.print_result(args, out, out=out)


def _index_sha256(args: argparse.Namespace, plan: Plan) -> str:
    """The hashes of the searched index, wherever it is and whoever serves it."""
    from ragauge.pipelines.retrieval.index import merged_folder
    from ragauge.pipelines.service.client import Client

    expected = (
        folders.sha256(merged_folder(plan.index.parent.parent, plan.index.name))
        if plan.index
        else None
    )
    if plan.starts_server and expected:
        return expected
    hashes = []
    for address in args.server:
        with Client(address, deadline_s=args.deadline, **options.access(args)) as client:
            hashes.append(client.describe().index)
    if expected and hashes != [expected]:
        raise UserError(f"{args.server[0]}: serves another index than {plan.index}")
    return " ".join(hashes)


def _make(
    args: argparse.Namespace,
    plan: Plan,
    checkpoint: modes.Checkpoint,
    specification: PipelineSpecification,
    database: Database,
    opened: ExitStack,
) -> Pipeline:
    """The decoder, and the retriever that the schedule uses: the server, or the servers of all
    parts at once.
    """
    from ragauge.pipelines.pipeline import Pipeline
    from ragauge.pipelines.service.client import Client
    from ragauge.pipelines.service.fanout import Fanout

    lm = specification.mode.load(checkpoint)
    database.check_tokenizer(lm.tokenizer, specification.source)
    if not plan.settings.asks_index:
        return Pipeline(lm, specification, passages=database)
    clients = []
    for address in args.server:
        client = opened.enter_context(
            Client(address, deadline_s=args.deadline, **options.access(args))
        )
        if client.describe().tokenizer != database.manifest["tokenizer"]:
            raise UserError(
                f"{address}: serves chunks cut with a different tokenizer than {args.database}"
            )
        clients.append(client)
    searcher = clients[0] if len(clients) == 1 else Fanout(clients)
    return Pipeline(lm, specification, searcher, network_s=searcher.round_trip_s())


def _add_staleness(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_config(
        parser, "a configuration: all settings are those of --entry in its section `staleness`"
    )
    options.add_entry(parser, "staleness")
    options.add_database(parser, "the chunk database, with its held-out text")
    options.add_settings(parser, StalenessSettings, DATABASE)
    options.add_threads(
        parser, "threads of the encoder and of a search; default: the libraries' own choice"
    )
    add("--out", type=Path, required=True, metavar="FILE.json")


def _compare(args: argparse.Namespace) -> None:
    if args.config:
        config = loading.load(args.config)
        where = f"{args.config}: staleness"
        entries = config.staleness
        settings: StalenessSettings = options.entry(entries, args.entry, "comparison", where)
        recipe = config.databases[settings.database].indexes[settings.index]
        settings = settings.model_copy(update={"nprobe": settings.nprobe or recipe.default_nprobe})
    else:
        stated = options.given(args, StalenessSettings, DATABASE)
        settings = checked_options(StalenessSettings, {"database": args.database.name, **stated})
    from ragauge.cost.machine import provenance
    from ragauge.io import resumed
    from ragauge.io.digest import digest
    from ragauge.io.files import text_sha256
    from ragauge.pipelines.database.embed import Embeddings, EncoderChoice
    from ragauge.pipelines.evaluation import texts
    from ragauge.pipelines.retrieval.retriever import Retriever
    from ragauge.pipelines.retrieval.staleness import Comparison

    made = Embeddings(args.database, 0).manifest
    threads = args.threads
    # that the vectors of the index were made with
    searched = {"encoder": made["encoder"], "engine": made["engine"]}
    retriever = Retriever.open(args.database, settings.index, **searched, threads=threads)
    choice = EncoderChoice(settings.encoder, settings.engine, threads)
    comparison = Comparison(retriever, retriever.database, choice.load(), settings.nprobe)
    own = settings.evaluation in (None, settings.database)
    read = texts(
        retriever.database, settings.tokens, settings.limit, None if own else settings.evaluation
    )
    saved = args.out.with_name(f".{args.out.name}.texts")
    made_from = retriever.index.sha256, choice.sha256, settings.nprobe, settings.tokens
    compared = resumed.results(
        saved,
        text_sha256(
            *made_from, digest("ragauge.pipelines.retrieval.staleness"), [text.key for text in read]
        ),
        read,
        lambda text: [asdict(one) for one in comparison.compare(text.key, text.ids)],
        settings.minutes,
    )
    comparisons = [one for text in compared for one in text]
    if not comparisons:
        longest = max(comparison.stale_tokens) + retriever.database.chunk_tokens
        raise UserError(
            f"--tokens: {settings.tokens} are too few for the stalest query; it needs at least {longest}"
        )
    recipe = retriever.index.recipe
    report = {
        **settings.model_dump(include={"encoder", "database", "index", "evaluation", "tokens"}),
        "encoder_sha256": choice.sha256,
        "nprobe": settings.nprobe or recipe.default_nprobe,
        "filled": recipe.filled,
        "texts": len(compared),
        "stale_tokens": comparison.stale_tokens,
        "provenance": provenance(),
    }
    options.write_json(args.out, {**report, "queries": comparisons})
    if len(compared) == len(read):
        saved.unlink()
    options.print_result(args, args.out, out=args.out)


def _add_retrofit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_decoder(parser)
    add("--dtype", default="float32", choices=("float32", "bfloat16"))
    options.add_device(parser)
    options.add_database(parser, "the chunk database to train on")
    add(
        "--index",
        metavar="LABEL",
        help="start a server of this index of the database for the training",
    )
    options.add_server(parser, "use a running server")
    options.add_access(parser)
    options.add_settings(parser, RetrofitSettings, mode=modes.trainable())
    options.add_threads(parser, "default: torch's own choice")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="adapters.safetensors, curve.jsonl, checkpoints",
    )


def _train(args: argparse.Namespace) -> None:
    from ragauge.assets import resolver
    from ragauge.io.digest import digest
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.service.client import Client
    from ragauge.pipelines.service.process import running
    from ragauge.training.fit import RetroFit, RetrofitMaterial

    settings = checked_options(RetrofitSettings, options.given(args, RetrofitSettings))
    args.model = check_source(args.model, "--model")
    if bool(args.index) == bool(args.server):
        raise UserError("training requires retrieval: give --index or --server")
    database = Database(args.database)
    lm = modes.Checkpoint(
        args.model, dtype=args.dtype, device=args.device, threads=args.threads
    ).decoder()
    database.check_tokenizer(lm.tokenizer, args.model)
    sha256 = resolver.describe(args.model)["sha256"]
    about = {"model": args.model, "model_sha256": sha256, "database_sha256": database.sha256}
    about["code"] = digest("ragauge.training.fit", registry.module_name("mode", settings.mode))
    with ExitStack() as opened:
        address = (
            args.server
            or opened.enter_context(running(args.database / "indexes" / args.index)).address
        )
        client = opened.enter_context(Client(address, **options.access(args)))
        about["index_sha256"] = client.describe().index
        adapters = RetroFit(lm, RetrofitMaterial(database, client, settings), args.out, about).fit()
    options.print_result(args, adapters, out=adapters)


def _add_export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    own = ", ".join(modes.with_option("weights"))
    add(
        "--mode",
        default="joint",
        choices=registry.names("mode"),
        help="how neighbours are read (joint)",
    )
    options.add_reader(parser)
    dtype = "data type of the export; float16 is for GPUs only (float32)"
    add("--dtype", default="float32", choices=ONNX_DTYPES["cuda"], help=dtype)
    add("--seed", type=int, default=0, help="seed of random weights (0)")
    options.add_database(
        parser, f"mode {own}: the chunk database, for its tokenizer", required=False
    )
    add("--out", type=Path, required=True, metavar="FOLDER")


def _export(args: argparse.Namespace) -> None:
    from ragauge.pipelines.database.database import Database

    folders.check_replaceable(args.out, has_manifest)
    mode = modes.make(args.mode, {})
    if "onnx" not in mode.engines:
        raise UserError(f"--mode {args.mode}: cannot be exported to ONNX")
    if mode.own_model and not args.database:
        raise UserError(
            f"--mode {args.mode}: requires --database, whose tokenizer sets the vocabulary"
        )
    option, value = ("--adapters", args.adapters) if mode.own_model else ("--weights", args.weights)
    if value:
        raise UserError(f"{option}: not valid with mode {args.mode!r}")
    options.check_adapters(args.adapters)
    checkpoint = modes.Checkpoint(
        check_source(args.model, "--model"),
        dtype=args.dtype,
        adapters=args.adapters,
        adapters_sha256=file_sha256(args.adapters) if args.adapters else None,
        weights=args.weights,
        seed=args.seed,
        vocabulary=Database(args.database).vocabulary if args.database else 0,
    )
    checkpoint = replace(checkpoint, sha256=mode.origin(checkpoint)[1])
    folders.replace(args.out, lambda folder: mode.export(checkpoint, folder), has_manifest)
    options.print_result(args, args.out, out=args.out)
