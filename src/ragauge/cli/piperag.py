"""PipeRAG: generation with retrieval, the training and the export of decoders that read neighbours,
stale queries.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.cli import _options as options
from ragauge.config.checks import check_source
from ragauge.config.dtypes import with_dtype
from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.config.reading import checked_options
from ragauge.cost.hardware import AUTO, DTYPES, ONNX_DTYPES
from ragauge.errors import SettingError, UserError
from ragauge.io.specifications import IndexFacts
from ragauge.pipelines.modes.base import Checkpoint, mode_classes, trainable_modes
from ragauge.pipelines.retrieval.settings import StalenessSettings
from ragauge.pipelines.settings import PipelineSettings, check_model
from ragauge.pipelines.specification import (
    PipelineSpecification,
    read_index_facts,
    specify_pipeline,
)
from ragauge.training.settings import RetrofitSettings

if TYPE_CHECKING:
    from ragauge.pipelines.job import Servers

STEPS = {
    "run": "generate or score evaluation text with retrieval under one schedule; resumes an interrupted run",
    "staleness": "compare the neighbours of stale and of fresh queries over held-out text (PipeRAG, Table 2)",
    "retrofit": "train a frozen decoder to use retrieved neighbours (RETRO-fit); resumes an interrupted run",
    "export": "export a decoder that reads neighbours, or RETRO, to ONNX for `ragauge piperag run --onnx`",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = (
        (_add_run, run),
        (_add_staleness, _compare),
        (_add_retrofit, _train),
        (_add_export, _export),
    )
    for (_, step), (add, verb) in zip(options.add_steps(parser, STEPS), verbs, strict=True):
        add(step)
        step.set_defaults(verb=verb)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    choices = {key: registry.names(key) for key in ("schedule", "mode")}
    options.add_config(parser, "a configuration; options override it")
    options.add_entry(parser, "pipelines")
    options.add_settings(parser, PipelineSettings, **choices)
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


def run(args: argparse.Namespace) -> None:
    """Score or continue every sequence that --out does not have yet."""
    from ragauge.io.records import recorded_dtype
    from ragauge.pipelines import job

    if bool(args.index) + bool(args.server) + bool(args.server_file) > 1:
        raise UserError("give --index or --server, or --server-file, not several")
    config = options.configuration(args)
    specifications = _configured(args, config) if config else {args.out: _stated(args)}
    # of several, which differ in their schedules alone, one that searches
    specification = max(specifications.values(), key=lambda each: each.pipeline.queries_index)
    settings = specification.pipeline
    adapters = args.adapters or (Path(settings.adapters) if settings.adapters else None)
    decoder = specification.model_dump(include={"source", "dtype", "device"})
    try:
        check_model(settings, *decoder.values())
    except SettingError as error:
        raise UserError(f"--{error}") from None
    if adapters and not adapters.is_file():
        raise UserError(f"--adapters: no such file: {adapters}")
    servers = _servers(args, specification, config)
    facts = None
    if servers.index:
        facts = read_index_facts(servers.index, specification.index if config else None)
    # may measure dtypes: after all that is refused without a measurement
    allowed = ("float32",) if settings.engine == "onnx" else DTYPES
    dtype = with_dtype(ModelEntry(**decoder), recorded_dtype(args.out), allowed).dtype
    for out, each in specifications.items():
        update: dict[str, Any] = {"dtype": dtype}
        if facts and each.pipeline.queries_index:
            nprobe = each.pipeline.nprobe or facts.nprobe
            searched = each.pipeline.model_copy(update={"nprobe": nprobe})
            update |= {"index": facts, "pipeline": searched}
        specifications[out] = each.model_copy(update=update)
    weights = {"adapters": adapters, "exported": args.onnx}
    with options.ended_in_order():
        job.run(specifications, args.database, servers, **weights, overwrite=args.overwrite)
    options.print_result(args, args.out, out=args.out)


def _stated(args: argparse.Namespace) -> PipelineSpecification:
    """Return the pipeline of the options; labels are names of folders and sources."""
    values = {"schedule": "retro", "index": args.index or "server"}
    values["engine"] = "onnx" if args.onnx else "torch"
    if args.adapters:
        values["adapters"] = str(args.adapters)
    settings = checked_options(PipelineSettings, values | options.given(args, PipelineSettings))
    check_source(args.model, "--model")
    return specify_pipeline(
        settings,
        model=args.model,
        database=args.database.name,
        index=IndexFacts(label="server", type="server", settings={}),
        source=args.model,
        dtype=args.dtype,
        device=args.device,
        seed=args.seed,
    )


def _configured(args: argparse.Namespace, config: Config) -> dict[Path, PipelineSpecification]:
    """Return the pipeline of a configuration, overridden by the options, with those that take turns
    with it, whose records stand next to its own.
    """
    label = options.label(config.pipelines, args.entry, "pipeline", f"{args.config}: pipelines")
    entry = config.pipelines[label]
    needs_adapters = bool(entry.retrofit_minutes)
    takes_adapters = needs_adapters or bool(entry.adapters)
    files = (
        ("adapters", args.adapters, needs_adapters, takes_adapters),
        ("onnx", args.onnx, entry.engine == "onnx", entry.engine == "onnx"),
    )
    for option, path, is_needed, is_taken in files:
        if path is None and is_needed:
            raise UserError(f"--entry {label}: requires --{option}")
        if path is not None and not is_taken:
            raise UserError(f"--entry {label}: does not take --{option}")
    specifications = {}
    for name in config.interleaved(label):
        values = config.pipelines[name].model_dump() | options.given(args, PipelineSettings)
        settings = checked_options(PipelineSettings, values)
        out = args.out if name == label else args.out.with_name(f"{name}.jsonl")
        specifications[out] = config.pipeline_specification(settings)
    return specifications


def _servers(
    args: argparse.Namespace, specification: PipelineSpecification, config: Config | None
) -> Servers:
    """Return the servers that a pipeline searches on, waiting for that of --server-file."""
    from ragauge.pipelines.job import Servers

    settings = specification.pipeline
    if not settings.queries_index:
        return Servers()
    configured: dict[str, Any] = {
        "tls_ca": settings.tls_ca and Path(settings.tls_ca),
        "tls_name": settings.tls_name,
        "token_file": settings.token_file and Path(settings.token_file),
    }
    access = {key: value or configured[key] for key, value in options.access(args).items()}
    access["deadline_s"] = args.deadline
    addresses = args.server or settings.addresses
    if args.server_file:
        from ragauge.pipelines.service.jobs import wait_for_server

        addresses = [wait_for_server(args.server_file, **access)]
    label = settings.index if config else args.index
    start_options = None
    if not config and label:
        start_options = []
    elif config and not (addresses or settings.server):
        database = config.databases[specification.database]
        start_options = [f"--encoder={database.encoder}", f"--engine={database.engine}"]
        if settings.retrieval_cores:
            start_options.append(f"--cores={settings.retrieval_cores}")
    if not addresses and start_options is None:
        raise UserError(
            f"--schedule: {settings.schedule!r} requires retrieval; "
            "give --index or --server, or --server-file"
        )
    # a server that is a job of the workflow serves the index on this machine's disks, too
    is_on_disk = start_options is not None or (settings.has_server_job and args.server_file)
    folder = args.database / "indexes" / label if is_on_disk else None
    return Servers(addresses, folder, start_options, access)


def _add_staleness(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_config(
        parser, "a configuration: all settings are those of --entry in its section `staleness`"
    )
    options.add_entry(parser, "staleness")
    options.add_database(parser, "the chunk database, with its held-out text")
    options.add_settings(parser, StalenessSettings)
    options.add_threads(
        parser, "threads of the encoder and of a search; default: the libraries' own choice"
    )
    add("--out", type=Path, required=True, metavar="FILE.json")


def _compare(args: argparse.Namespace) -> None:
    config = options.configuration(args)
    if config:
        where = f"{args.config}: staleness"
        settings = options.entry(config.staleness, args.entry, "comparison", where)
        recipe = config.databases[settings.database].indexes[settings.index]
        settings = settings.model_copy(update={"nprobe": settings.nprobe or recipe.default_nprobe})
    else:
        values = options.given(args, StalenessSettings)
        settings = checked_options(StalenessSettings, {"database": args.database.name, **values})
    from ragauge.pipelines.retrieval.staleness import write_report

    write_report(args.database, settings, args.out, args.threads)
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
    options.add_settings(parser, RetrofitSettings, mode=trainable_modes())
    options.add_threads(parser, "default: torch's own choice")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="adapters.safetensors, curve.jsonl, checkpoints",
    )


def _train(args: argparse.Namespace) -> None:
    from ragauge.pipelines.job import Servers
    from ragauge.training import fit

    settings = checked_options(RetrofitSettings, options.given(args, RetrofitSettings))
    if bool(args.index) == bool(args.server):
        raise UserError("training requires retrieval: give --index or --server")
    index = args.database / "indexes" / args.index if args.index else None
    addresses = [args.server] if args.server else []
    servers = Servers(addresses, index, [] if index else None, options.access(args))
    decoder = Checkpoint(
        check_source(args.model, "--model"), None, args.dtype, args.device, args.threads
    )
    adapters = fit.train(settings, decoder, args.database, servers, args.out)
    options.print_result(args, adapters, out=adapters)


def _add_export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = ", ".join(name for name, mode in mode_classes().items() if mode.own_model)
    add(
        "--mode",
        default="joint",
        choices=registry.names("mode"),
        help="how neighbours are read (joint)",
    )
    options.add_reader(parser)
    add(
        "--dtype",
        default="float32",
        choices=ONNX_DTYPES["cuda"],
        help="data type of the export; float16 is for GPUs only (float32)",
    )
    add("--seed", type=int, default=0, help="seed of random weights (0)")
    options.add_database(
        parser, f"mode {names}: the chunk database, for its tokenizer", required=False
    )
    add("--out", type=Path, required=True, metavar="FOLDER")


def _export(args: argparse.Namespace) -> None:
    from ragauge.pipelines import export

    checkpoint = Checkpoint(
        check_source(args.model, "--model"),
        dtype=args.dtype,
        adapters=args.adapters,
        seed=args.seed,
    )
    export.write(args.mode, checkpoint, args.database, args.out)
    options.print_result(args, args.out, out=args.out)
