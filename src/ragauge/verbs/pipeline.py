"""Generate or score held-out text with retrieval under one schedule; goes on where a killed run was."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.engines import LM
    from ragauge.experiment.schema import Model
    from ragauge.generation.cross_attention import CrossAttention
    from ragauge.generation.joint import JointAttention
    from ragauge.generation.onnx import OnnxLM
    from ragauge.generation.onnx_retro import OnnxRetroLM
    from ragauge.generation.own_encoder import OwnEncoder, RetroLM
    from ragauge.generation.pipeline import Pipeline, Setting
    from ragauge.io.specifications import PipelineSpecification
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.fanout import Fanout

ASKING = ("retrieve_once", "retro", "retro_plus", "piperag")  # schedules that need a retriever
FORMS = ("joint", "cross_attention", "retro")
ELSEWHERE = {"model", "database", "index", "engine", "retrieval_cores", "retrofit_minutes"}  # keys that are no option
SCHEDULES = ("no_retrieval", "random", *ASKING)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE.yaml", help="take all settings from its pipeline --pipeline")
    add("--pipeline", metavar="LABEL", help="of --config")
    add("--schedule", default="retro", choices=SCHEDULES, help="when the database is asked, and what is waited for")
    add("--task", default="perplexity", choices=("perplexity", "generate"), help="score given text, or continue it")
    add("--model", default="smollm2-135m-instruct", help="a Llama-family decoder: name, source or folder")
    add("--dtype", default="float32", choices=options.DTYPES)
    add("--device", default="cpu", choices=options.DEVICES)
    add("--database", type=Path, required=True, metavar="FOLDER", help="the chunk database, with its held-out text")
    add("--index", type=Path, metavar="FOLDER", help="start a server of this index for the length of the run")
    add("--server", action="append", metavar="HOST:PORT", help="ask a server that runs already; one for each part")
    add("--tls-ca", type=Path, metavar="FILE.pem", help="certificates that the server's is checked against")
    add("--deadline", type=float, default=30.0, metavar="SECONDS", help="of each retrieval")
    add("--serve-options", default="", metavar="TEXT", help="options of `ragauge serve`, where --index is given")
    add("--interval", type=int, default=64, help="tokens between retrievals: 8, 16, 32, 64")
    add("--neighbours", type=int, default=2, metavar="K")
    add("--nprobe", metavar="N|hide", help="inverted lists scanned; hide: as many as decoding hides (piperag)")
    add(
        "--exclude",
        default="none",
        choices=("none", "article"),
        help="pass over neighbours from the text's own article",
    )
    add("--characters", type=int, metavar="N", help="ask with the query's last N characters, as the released code does")
    add(
        "--form",
        default="joint",
        choices=FORMS,
        help="how neighbours are read; cross_attention needs --adapters; retro is RETRO itself in the place of --model",
    )
    add("--weights", type=Path, metavar="FILE", help="of the form retro: its tensors; default: random, for latency")
    add("--reach", type=int, metavar="TOKENS", help="most tokens between neighbours and window; default: no bound")
    add("--bias", type=float, default=0.0, help="added to the attention scores of neighbours' keys")
    add(
        "--read-ahead",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="piperag: the thread that asks reads the neighbours too, beside decoding",
    )
    add("--onnx", type=Path, metavar="FOLDER", help="generate by ONNX Runtime with what `ragauge export` wrote there")
    add("--adapters", type=Path, metavar="FILE.safetensors", help="trained by `ragauge retrofit`")
    add("--tokens", type=int, default=1024, help="of a sequence")
    add("--limit", type=int, help="sequences; default: all")
    add("--trials", type=int, default=1, help="of each generation, after one that is not timed")
    add("--threads", type=options.count, help="of the decoder; default: torch's own choice")
    add("--cores", metavar="LIST", help="processor cores of the decoder, as in 0 or 0-3; default: all")
    add("--seed", type=int, default=0, help="of random neighbours")
    add("--overwrite", action="store_true", help="run every sequence again")
    add("--out", type=Path, required=True, metavar="FILE.jsonl")


def run(args: argparse.Namespace) -> None:
    from ragauge.retrieval.service.cores import pin

    if args.index and args.server:
        raise UserError("give --index or --server, not both")
    if args.config:
        _configure(args)
    with ExitStack() as opened:
        if args.index and args.schedule in ASKING:  # before this process is kept to cores, which its children inherit
            args.server = [_serve(args, opened)]
        if args.cores:
            pin(args.cores)
        _run(args, opened)


def _configure(args: argparse.Namespace) -> None:
    """Put the settings of a configuration's pipeline in the place of the options."""
    from ragauge.errors import unknown
    from ragauge.experiment import schema

    experiment = schema.load(args.config)
    if args.pipeline not in experiment.pipelines:
        raise unknown("pipeline", args.pipeline, experiment.pipelines, f"{args.config}: pipelines")
    entry = experiment.pipelines[args.pipeline]
    model = experiment.models[experiment.pipeline_model(entry)]
    vars(args).update(entry.model_dump(exclude=ELSEWHERE))
    args.model, args.dtype, args.device, args.seed = model.source, model.dtype, model.device, experiment.seed
    if (entry.retrofit_minutes is None) != (args.adapters is None):
        needed = "needs" if entry.retrofit_minutes else "takes no"
        raise UserError(f"--pipeline {args.pipeline}: {needed} --adapters, by its retrofit_minutes")
    if (entry.engine == "onnx") != (args.onnx is not None):
        needed = "needs" if entry.engine == "onnx" else "takes no"
        raise UserError(f"--pipeline {args.pipeline}: {needed} --onnx, by its engine {entry.engine}")
    args.nprobe = None if entry.nprobe is None else str(entry.nprobe)
    args.weights = Path(entry.weights) if entry.weights else None
    args.index = args.database / "indexes" / entry.index if entry.asks and not args.server else None
    if entry.retrieval_cores:
        args.serve_options += f" --cores {entry.retrieval_cores}"


def _run(args: argparse.Namespace, opened: ExitStack) -> None:
    """Everything that imports numerical libraries."""
    from ragauge.cost.machine import provenance
    from ragauge.experiment.schema import Model, check_source
    from ragauge.generation import pipeline
    from ragauge.generation.evaluation import texts
    from ragauge.retrieval.database import Database

    check_source(args.model, "--model")
    if args.limit is not None and args.limit < 1:
        raise UserError(f"--limit: must be at least 1, not {args.limit}")
    model, database = Model(source=args.model, dtype=args.dtype, device=args.device), Database(args.database)
    setting = _setting(args, model, database)
    out = pipeline.run(
        lambda: _make(args, setting, database, opened),
        texts(database, args.tokens, args.limit),
        setting,
        args.out,
        overwrite=args.overwrite,
        about={
            "provenance": provenance(),
            "cores": args.cores,
            "database": database.counts,
            "specification": _specification(args, model).model_dump(),
        },
    )
    print(out)


def _specification(args: argparse.Namespace, model: Model) -> PipelineSpecification:
    """Every option resolved; labels are those of the configuration, or names of folders and sources without one."""
    from ragauge.experiment import schema
    from ragauge.generation.settings import PipelineSettings
    from ragauge.generation.specification import index_facts, specify
    from ragauge.io.specifications import IndexFacts

    labels = {"model": args.model, "database": args.database.name}
    given = {name: value for name, value in vars(args).items() if name in PipelineSettings.model_fields}
    nprobe = int(args.nprobe) if args.nprobe and args.nprobe.isdecimal() else args.nprobe
    made = {"nprobe": nprobe, "index": args.index.name if args.index else "server", "engine": "torch"}
    entry = PipelineSettings(**{**given, **made, **labels, "weights": str(args.weights) if args.weights else None})
    if args.config:
        experiment = schema.load(args.config)
        entry = experiment.pipelines[args.pipeline]
        labels = {"model": experiment.pipeline_model(entry), "database": experiment.pipeline_database(entry)}
    elif args.onnx:
        entry = entry.model_copy(update={"engine": "onnx"})
    index = index_facts(args.index) if args.index else IndexFacts(label="server", type="server", settings={})
    engine = {"dtype": model.dtype, "device": model.device, "threads": args.threads, "cores": args.cores}
    return specify(entry, **labels, index=index if entry.asks else None, engine=engine)


def _setting(args: argparse.Namespace, model: Model, database: Any) -> Setting:
    from ragauge.generation.pipeline import Setting
    from ragauge.generation.schedule import Schedule
    from ragauge.io.digest import digest
    from ragauge.io.folders import file_sha256

    schedule = Schedule(
        args.schedule,
        args.interval,
        args.neighbours,
        None if args.nprobe == "hide" else _nprobe(args.nprobe),
        args.nprobe == "hide",
        args.exclude,
        args.characters,
        args.seed,
        args.read_ahead,
    )
    if schedule.asks and not args.server:
        raise UserError(f"--schedule {args.schedule}: asks a retriever; give --index or --server")
    if args.adapters and not args.adapters.is_file():
        raise UserError(f"--adapters: no such file: {args.adapters}")
    name, sha256 = _decoder(args, model)
    return Setting(
        task=args.task,
        schedule=schedule,
        form=_form(args),
        model=name,
        tokens=args.tokens,
        engine="onnx" if args.onnx else "torch",
        trials=args.trials,
        dtype=model.dtype,
        device=model.device,
        threads=args.threads,
        model_sha256=sha256,
        adapters_sha256=file_sha256(args.adapters) if args.adapters else None,
        database_sha256=database.sha256,
        index=str(args.index or ", ".join(args.server)) if schedule.asks else None,
        code=digest("ragauge.generation.pipeline"),
    )


def _decoder(args: argparse.Namespace, model: Model) -> tuple[str, str]:
    """The decoder's name and the hash of its weights."""
    from ragauge import assets
    from ragauge.generation.architecture import origin

    if args.form == "retro":
        return "retro", origin(args.weights, args.seed)
    assets.resolve(model.source)
    return model.source, assets.describe(model.source)["sha256"]


def _form(args: argparse.Namespace) -> JointAttention | CrossAttention | OwnEncoder:
    """How neighbours are read."""
    from ragauge.generation.cross_attention import CrossAttention
    from ragauge.generation.joint import JointAttention

    if args.weights and args.form != "retro":
        raise UserError(f"--weights: are of the form retro alone, not of {args.form}")
    if args.form == "retro":
        return _own_encoder(args)

    if args.form == "joint":
        return JointAttention(args.reach, bias=args.bias)
    if args.reach is not None or args.bias:
        raise UserError(f"--form {args.form}: --reach and --bias are of the form joint alone")
    if not args.adapters:
        raise UserError(f"--form {args.form}: reads nothing before it was trained; give --adapters")
    return CrossAttention()


def _own_encoder(args: argparse.Namespace) -> OwnEncoder:
    """RETRO's own form, which takes nothing that is for decoders made to read neighbours."""
    from ragauge.generation.own_encoder import OwnEncoder

    given = {"--adapters": args.adapters, "--reach": args.reach, "--bias": args.bias or None}
    for option in (option for option, value in given.items() if value is not None):
        raise UserError(f"{option}: is not of the form retro")
    if args.weights is None and args.task == "perplexity":
        raise UserError("--task perplexity: of random weights says nothing; give --weights, or --task generate")
    return OwnEncoder()


def _retro(args: argparse.Namespace, setting: Setting, database: Any) -> RetroLM | OnnxRetroLM:
    """RETRO with a user's weights or random ones, for the database's tokenizer."""
    import torch

    from ragauge.engines import DTYPES
    from ragauge.generation.architecture import make_retro
    from ragauge.generation.onnx_retro import open_retro
    from ragauge.generation.own_encoder import RetroLM

    if args.onnx:
        about = {"model_sha256": setting.model_sha256, "vocabulary": database.vocabulary}
        cuda = setting.device == "cuda"
        return open_retro(args.onnx, about, database.tokenizer, threads=setting.threads, cuda=cuda)
    if setting.threads:
        torch.set_num_threads(setting.threads)
    model = make_retro(args.weights, args.seed, database.vocabulary, setting.device)
    return RetroLM(model.to(DTYPES[setting.dtype]), database.tokenizer)


def _torch(adapters: Path | None, setting: Setting) -> tuple[LM, LM | None]:
    """The decoder that reads text, and the one that reads neighbours where that is another."""
    from ragauge.engines import load_lm
    from ragauge.generation.adapters import Adapters
    from ragauge.generation.cross_attention import CrossLM
    from ragauge.generation.cross_weights import CrossWeights

    lm = load_lm(setting.model, dtype=setting.dtype, device=setting.device, threads=setting.threads)
    if setting.form.name != "joint":
        assert adapters is not None
        return CrossLM(lm, CrossWeights.load(adapters, lm, setting.model_sha256)), None
    return lm, Adapters.load(adapters, lm, setting.model_sha256).merged(lm) if adapters else None


def _onnx(folder: Path, setting: Setting) -> tuple[OnnxLM, None]:
    """The exported decoder, which must be that of --model, with the adapters that it was exported with."""
    from ragauge import assets
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.generation.onnx import open_exported

    tokenizer = load_tokenizer(assets.resolve(setting.model))
    about = {"model_sha256": setting.model_sha256, "adapters_sha256": setting.adapters_sha256}
    return open_exported(folder, about, tokenizer, threads=setting.threads, cuda=setting.device == "cuda"), None


def _load(
    args: argparse.Namespace, setting: Setting, database: Any
) -> tuple[LM | OnnxLM | RetroLM | OnnxRetroLM, LM | None]:
    if args.form == "retro":
        return _retro(args, setting, database), None
    return _onnx(args.onnx, setting) if args.onnx else _torch(args.adapters, setting)


def _make(args: argparse.Namespace, setting: Setting, database: Any, opened: ExitStack) -> Pipeline:
    """The decoder, and the retriever that the schedule asks; `opened` ends a server that was started."""
    from ragauge.generation.evaluation import Chunks
    from ragauge.generation.pipeline import Pipeline

    lm, adapted = _load(args, setting, database)
    database.check_tokenizer(lm.tokenizer, setting.model)
    if not setting.schedule.asks:
        return Pipeline(lm, setting, passages=Chunks(database), adapted=adapted)
    return Pipeline(lm, setting, _retriever(args, database, opened), adapted=adapted)


def _retriever(args: argparse.Namespace, database: Any, opened: ExitStack) -> Client | Fanout:
    """The server, or the servers of all parts at once; each must hold chunks of the database's tokenizer."""
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.fanout import Fanout

    clients = []
    for address in args.server:
        client = opened.enter_context(Client(address, deadline_s=args.deadline, tls_ca=args.tls_ca))
        if client.describe().tokenizer != database.manifest["tokenizer"]:
            raise UserError(f"{address}: its chunks are of another tokenizer than those of {args.database}")
        clients.append(client)
    return clients[0] if len(clients) == 1 else Fanout(clients)


def _serve(args: argparse.Namespace, opened: ExitStack) -> str:
    from ragauge.retrieval.service.process import running

    return opened.enter_context(running(args.index, options=shlex.split(args.serve_options))).address


def _nprobe(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--nprobe: must be a number from 1, or hide, not {text!r}")
    return int(text)
