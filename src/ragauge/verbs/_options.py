"""What verbs share: groups of arguments, the objects that they name, and printing of results."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.cost.hardware import AUTO, DEVICES, device_here
from ragauge.errors import UserError, unknown

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ragauge.evaluation.inputs import Questions
    from ragauge.experiment.schema import Config, DatasetEntry, ModelEntry, VariantEntry
    from ragauge.methods import Method

MODEL_OPTIONS = {"engine", "dtype", "weights", "kv", "device", "template", "max_context", "kernels"}  # keys of a model


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Have SIGTERM end the block as an interruption does, so that what it holds open is closed."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- groups of arguments, and types ---


def add_settings(
    parser: argparse.ArgumentParser, model: type[BaseModel], exclude: Collection[str] = (), **choices: Collection[str]
) -> None:
    """An option for each key of a settings model, with its choices, default and description; `given` reads them.

    Values stay text: the model checks and converts them.

    Args:
        exclude: keys that do not become options.
        choices: of keys whose type does not say them.
    """
    from pydantic_core import PydanticUndefined

    for key, field in model.model_fields.items():
        if key in exclude:
            continue
        about: dict[str, Any] = {
            "dest": key,
            "default": argparse.SUPPRESS,
            "help": (field.description or "").removesuffix("; default: the key"),
        }
        if field.default not in (None, PydanticUndefined) and "default:" not in about["help"]:
            about["help"] += f" ({field.default})"
        if key == "device":
            add_device(parser, about["default"], about["help"])
        elif field.annotation is bool:
            parser.add_argument(_option(key), action=argparse.BooleanOptionalAction, **about)
        elif known := choices.get(key, _literals(field.annotation)):
            parser.add_argument(_option(key), choices=tuple(known), **about)
        else:
            parser.add_argument(_option(key), metavar=key.upper(), **about)


def _literals(annotation: Any) -> list[str]:
    """The values of a type that enumerates them."""
    from typing import Literal, get_args, get_origin

    from ragauge.experiment.reading import alternatives

    types = [one for one in alternatives(annotation) if one is not type(None)]
    are_literals = all(get_origin(one) is Literal for one in types)
    return [value for one in types for value in get_args(one)] if are_literals else []


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def given(args: argparse.Namespace, model: type[BaseModel], exclude: Collection[str] = ()) -> dict[str, Any]:
    """The options of `add_settings` that the command line states."""
    return {key: value for key, value in vars(args).items() if key in model.model_fields and key not in exclude}


def add_config(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help=help)


def add_its_config(parser: argparse.ArgumentParser) -> None:
    """The configuration of a verb that reads nothing else: the name of its option may be left out."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("only_config", type=Path, nargs="?", metavar="CONFIG", help="the configuration")
    either.add_argument("--config", type=Path, metavar="FILE.yaml", help="the same")


def add_entry(parser: argparse.ArgumentParser, section: str) -> None:
    text = f"the entry of --config's section `{section}`; default: its only one"
    parser.add_argument("--entry", metavar="LABEL", help=text)


def add_set(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help)


def add_database(parser: argparse.ArgumentParser, help: str, required: bool = True) -> None:
    parser.add_argument("--database", type=Path, required=required, metavar="FOLDER", help=help)


def add_server(parser: argparse.ArgumentParser, help: str, several: bool = False, required: bool = False) -> None:
    """The address of a running server, or of one for each part of a database."""
    action = "append" if several else "store"
    parser.add_argument("--server", action=action, required=required, metavar="HOST:PORT", help=help)


def add_access(parser: argparse.ArgumentParser) -> None:
    """What a server with TLS and a token asks of its clients."""
    parser.add_argument("--tls-ca", type=Path, metavar="FILE.pem", help="CA certificates that verify the server's")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE.pem", help="certificate chain of this client")
    parser.add_argument("--tls-key", type=Path, metavar="FILE.pem", help="private key of that certificate")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file of the token that the server requires")


def access(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_access`, as a client of the service takes them."""
    return {"tls_ca": args.tls_ca, "tls_cert": args.tls_cert, "tls_key": args.tls_key, "token": args.token_file}


def add_run_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: reports/<run>")
    add_json(parser)


def add_questions(parser: argparse.ArgumentParser, required: bool = True) -> None:
    add_config(parser, "a configuration, whose labels the other options then use")
    parser.add_argument("--dataset", required=required, help="a data set; with --config, one of its labels")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help=("the data set in its official format (.jsonl, .jsonl.gz)")
    )
    parser.add_argument("--seed", type=int, help="seed of the document order (0)")


def add_materialised(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--examples", type=Path, metavar="FILE.jsonl", help="questions that `ragauge fetch --dataset` wrote"
    )


def add_method_options(parser: argparse.ArgumentParser) -> None:
    add_set(parser, "a parameter of the method; dataset.KEY=VALUE: an option of the data set")


def add_model(parser: argparse.ArgumentParser, exclude: Collection[str] = ()) -> None:
    parser.add_argument(
        "--model",
        required=True,
        help=("a name in the catalog, a source such as hf:org/name, or a folder; with --config, one of its labels"),
    )
    from ragauge.experiment.schema import ModelEntry

    add_settings(
        parser, ModelEntry, set(ModelEntry.model_fields) - MODEL_OPTIONS | set(exclude), engine=registry.names("engine")
    )
    parser.add_argument("--threads", type=count, metavar="N", help="threads of the decoder; default: all cores")


def add_decoder(parser: argparse.ArgumentParser) -> None:
    """The decoder of generation with retrieval, which has no label."""
    parser.add_argument("--model", default="smollm2-135m-instruct", help="the decoder: name, source or folder")


def add_reader(parser: argparse.ArgumentParser) -> None:
    """What reads neighbours: the decoder, with what was trained for it, or the weights of a form with its own model."""
    from ragauge.generation.settings import PipelineSettings

    add, fields = parser.add_argument, PipelineSettings.model_fields
    add_decoder(parser)
    add("--adapters", type=Path, metavar="FILE.safetensors", help="weights that `ragauge piperag retrofit` trained")
    add("--weights", type=Path, metavar="FILE", help=fields["weights"].description)


def check_adapters(path: Path | None) -> None:
    """Raise UserError if --adapters names no file."""
    if path and not path.is_file():
        raise UserError(f"--adapters: no such file: {path}")


def add_measured(parser: argparse.ArgumentParser) -> None:
    """What is measured: methods on the questions of a data set, by a model."""
    parser.add_argument("--methods", type=names, metavar="M,...", help="methods; with --config, its variants")
    add_method_options(parser)
    add_questions(parser)
    add_materialised(parser)
    add_model(parser, {"engine"})
    parser.add_argument("--allow-load", action="store_true", help="report times even if other processes were busy")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    add_json(parser)


def add_device(parser: argparse.ArgumentParser, default: str = "cpu", help: str = "where the model runs (cpu)") -> None:
    """Options that name a device also take `auto`, which is settled here: no record depends on it."""
    known = f"{{{','.join((AUTO, *DEVICES))}}}"
    parser.add_argument("--device", type=device, default=default, metavar=known, help=help)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def batch(text: str) -> int | str:
    if text != "auto" and (not text.isdecimal() or int(text) < 1):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1, or auto")
    return text if text == "auto" else int(text)


def device(text: str) -> str:
    """A device, `auto` settled."""
    try:
        return device_here(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """`90s`, `30m`, `1h30m` -> seconds."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    seconds = sum(int(n or 0) * unit for n, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time such as 90s, 30m or 1h30m")
    return float(seconds)


def size(text: str) -> float:
    return _amount(text, "gigabytes")


def days(text: str) -> float:
    return _amount(text, "days")


def _amount(text: str, unit: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of {unit}")
    return amount


def counts(text: str) -> list[int]:
    return [count(number) for number in text.split(",")]


def part(text: str) -> tuple[int, int]:
    """`0/2` -> (0, 2)."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and int(number) < int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} must be I/N with I from 0 to N-1, as in 0/2")
    return int(number), int(of)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


# --- the objects that arguments name ---


def configuration(args: argparse.Namespace) -> Config | None:
    if args.config is None:
        return None
    from ragauge.experiment import loading

    return loading.load(args.config)


def pick(section: dict[str, Any], name: str, what: str, where: str) -> Any:
    if name not in section:
        raise unknown(what, name, section, where)
    return section[name]


def entry(section: dict[str, Any], name: str | None, what: str, where: str, option: str = "--entry") -> Any:
    """The entry of that label, or the section's only one."""
    return section[label(section, name, what, where, option)]


def label(section: dict[str, Any], name: str | None, what: str, where: str, option: str = "--entry") -> str:
    """The label given, or the section's only one."""
    if not section:
        place, _, key = where.rpartition(": ")
        raise UserError(f"{place}: has no section `{key}`")
    if name is None and len(section) == 1:
        return next(iter(section))
    if name is None:
        raise UserError(f"{where}: {len(section)} of them; name one with {option}: {', '.join(section) or 'none'}")
    if name not in section:
        raise unknown(what, name, section, where)
    return name


def its_config(args: argparse.Namespace) -> Config:
    """The configuration of `add_its_config`."""
    from ragauge.experiment import loading

    return loading.load(args.config or args.only_config)


def rendered_run(args: argparse.Namespace) -> tuple[Config, Path, Path]:
    """The configuration of a run, its folder of results and its folder of reports."""
    from ragauge.experiment import loading

    settings = loading.load(args.config)
    results = args.results or Path("results") / settings.run
    return settings, results, args.out or Path("reports") / settings.run


def model(args: argparse.Namespace, config: Config | None, known: bool = True) -> ModelEntry:
    """The model of --model: a label of the configuration, or a name or source; options override both."""
    from ragauge.experiment.checks import check_source
    from ragauge.experiment.dtypes import with_dtype
    from ragauge.experiment.reading import checked_options
    from ragauge.experiment.schema import SERVED, ModelEntry
    from ragauge.io.records import recorded_dtype

    changes = {key: value for key, value in vars(args).items() if key in MODEL_OPTIONS}
    if config:
        labelled: ModelEntry = pick(config.models, args.model, "model", f"{args.config}: models")
        chosen: ModelEntry = checked_options(ModelEntry, labelled.model_dump() | changes)
    else:
        served = args.model.startswith(SERVED)
        source = check_source(args.model, "--model") if known and not served else args.model
        chosen = checked_options(ModelEntry, {"source": source, **changes})
    if chosen.kernels:
        os.environ["RAGAUGE_KERNELS"] = chosen.kernels  # for this process and those that it starts
    recorded = recorded_dtype(args.out) if getattr(args, "out", None) else None
    return with_dtype(chosen, recorded, threads=getattr(args, "threads", None))


def questions(args: argparse.Namespace, config: Config | None) -> Questions:
    """The questions of --dataset: a label of the configuration, or a registered name."""
    from ragauge.assets.pins import Pin
    from ragauge.evaluation.inputs import Questions

    written, options = getattr(args, "examples", None), settings(keys_of("dataset", args.set), "--set dataset.")
    if config is None:
        check_name("dataset", args.dataset)
        return Questions(args.dataset, {"seed": args.seed or 0, **options}, args.data, written)
    entry: DatasetEntry = pick(config.datasets, args.dataset, "data set", f"{args.config}: datasets")
    seed = first(args.seed, config.dataset_seed(args.dataset))
    official = args.data or (Path(entry.data) if entry.data else None)
    pin = None if args.data else Pin(revision=entry.revision, sha256=entry.sha256)
    return Questions(entry.dataset, {"seed": seed, **entry.options, **options}, official, written, pin)


def limit(args: argparse.Namespace, config: Config | None) -> int | None:
    """The number of questions that the configuration sets for the job, if any."""
    from ragauge.experiment.schema import Answers

    return config.limit(Answers(args.dataset, args.model, args.method)) if config else None


def method(args: argparse.Namespace, name: str, config: Config | None) -> tuple[str, Method]:
    """A method's name in the registry, and the method: a variant of the configuration, or the method of that name.

    --set overrides its options.
    """
    from ragauge.experiment.schema import VariantEntry

    params = settings(keys_of("", args.set), "--set")
    if config:
        entry: VariantEntry = pick(config.methods, name, "variant", f"{args.config}: methods")
        return entry.method, entry.model_copy(update=params).make(f"{args.config}: methods.{name}")
    check_name("method", name)
    return name, VariantEntry(method=name, **params).make(f"--method {name}")


def check_name(kind: str, name: str) -> None:
    """Raise UserError on an unknown component before anything heavy is imported."""
    if name not in registry.names(kind):
        raise unknown(kind, name, registry.names(kind), f"--{kind}")


SCOPES = ("dataset", "index")  # whose keys --set takes as SCOPE.KEY=VALUE


def keys_of(scope: str, pairs: Sequence[str]) -> list[str]:
    """The `--set` of a scope, without its name; of none, those of what the verb is about."""
    parts = [(pair.partition(".")[0], pair) for pair in pairs]
    if scope:
        return [pair.partition(".")[2] for named, pair in parts if named == scope]
    return [pair for named, pair in parts if named not in SCOPES]


def settings(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`["top_k=2", "saliency=none"]` -> `{"top_k": 2, "saliency": "none"}`: values are read as YAML."""
    import yaml

    from ragauge.io import safe_yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UserError(f"{option} {pair!r}: must be key=value, as in {option} top_k=2")
        try:
            settings[key] = safe_yaml.load(value)
        except yaml.YAMLError:
            raise UserError(f"{option} {pair!r}: the value is not valid YAML; put it in quotes") from None
    return settings


def first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


# --- results ---


def write_json(path: Path, data: Any) -> None:
    from ragauge.io.files import write_file

    write_file(path, (json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n").encode())


def show(result: Any, as_json: bool) -> None:
    """A result on standard output: one JSON object on the last line, or one line per value."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False, default=str))
        return
    for key, value in result.items():
        print(f"{key:24} {value if not isinstance(value, dict | list) else json.dumps(value, ensure_ascii=False)}")


def tell(args: argparse.Namespace, text: object, **result: Any) -> None:
    """What was made, on standard output: a text, or with --json the result as one JSON object on the last line."""
    if args.json:
        show(result, as_json=True)
    else:
        print(text)
