"""Groups of arguments that verbs share, the objects that they name, and the printing of results."""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.cost.hardware import AUTO, DEVICES, device_here
from ragauge.errors import UserError, unknown
from ragauge.io.sections import NO_OPTION
from ragauge.measure.servers import SERVERS

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ragauge.config.experiment import Config
    from ragauge.config.model import ModelEntry
    from ragauge.config.schema import DatasetEntry, VariantEntry
    from ragauge.measure.inputs import QuestionSource
    from ragauge.methods.base.method import Method

AFFECTS_RESULTS = False


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Have SIGTERM end the block as an interruption does, so that open files and servers are
    closed.
    """

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def _device(text: str) -> str:
    """Return a device in place of `auto`, while options are parsed, so that no record depends on
    it.
    """
    try:
        return device_here(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


DEVICE: dict[str, Any] = {"type": _device, "metavar": f"{{{','.join((AUTO, *DEVICES))}}}"}


def duration(text: str) -> float:
    """`0.5s`, `90s`, `30m`, `1h30m` -> seconds."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    seconds = (
        sum(float(n or 0) * unit for n, unit in zip(match.groups(), (3600, 60, 1), strict=True))
        if match
        else 0.0
    )
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time such as 0.5s, 30m or 1h30m")
    return seconds


def amount(text: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if 0 <= number < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0")


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


def add_settings(
    parser: argparse.ArgumentParser,
    model: type[BaseModel],
    exclude: Collection[str] = (),
    **choices: Collection[str],
) -> None:
    """Add an option for each key of a settings model, with its choices, default and description.
    Values stay text: the model checks and converts them. `choices` are of keys whose type does not
    say them.
    """
    for key, field in model.model_json_schema()["properties"].items():
        if key in exclude or NO_OPTION in model.model_fields[key].metadata:
            continue
        [kind, *more] = [kind for kind in field.get("anyOf", [field]) if kind != {"type": "null"}]
        text = field["description"].removesuffix("; default: the key")
        if field.get("default") not in (None, []) and "default:" not in text:
            text += f" ({field['default']})"
        about: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        if key == "device":
            about |= DEVICE
        elif kind.get("type") == "boolean":
            about["action"] = argparse.BooleanOptionalAction
        elif kind.get("type") == "array":
            about |= {"type": names, "metavar": "N,..."}
        elif known := choices.get(key, () if more else kind.get("enum")):
            about["choices"] = tuple(known)
        else:
            about["metavar"] = key.upper()
        parser.add_argument(f"--{key.replace('_', '-')}", **about)


def given(args: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """Return the options of `add_settings` that the command line states."""
    return {
        key: value
        for key, value in vars(args).items()
        if key in model.model_fields and NO_OPTION not in model.model_fields[key].metadata
    }


def add_steps(
    parser: argparse.ArgumentParser, steps: Mapping[str, str], required: bool = True
) -> Iterator[tuple[str, Any]]:
    """Add the steps of a verb, with their help; yield (name, its parser), whose options follow."""
    below = parser.add_subparsers(required=required, metavar="STEP", dest="step")
    for name, text in steps.items():
        yield name, below.add_parser(name, help=text, description=text)


def _adder(option: str, help: str = "", **about: Any) -> Callable[..., None]:
    """Return a function of a parser, with a help text of its own perhaps, that adds an option."""
    return lambda parser, help=help, **more: parser.add_argument(option, help=help, **about | more)


add_config = _adder("--config", type=Path, metavar="FILE.yaml")
add_set = _adder("--set", action="append", default=[], metavar="KEY=VALUE")
add_database = _adder("--database", type=Path, required=True, metavar="FOLDER")
# with several for the parts of a database: action="append"
add_server = _adder("--server", metavar="HOST:PORT")
add_threads = _adder("--threads", "default: all cores", type=count, metavar="N")
add_device = _adder("--device", "where the model runs (cpu)", default="cpu", **DEVICE)
add_decoder = _adder(
    "--model", "the decoder: name, source or folder", default="smollm2-135m-instruct"
)
serve_text = "start this server for --model openai:NAME, where NAME is a model with a GGUF file, and end it afterwards"
add_serve = _adder("--serve", serve_text, choices=SERVERS)
add_examples = _adder(
    "--examples", "questions that `ragauge fetch --dataset` wrote", type=Path, metavar="FILE.jsonl"
)


def add_entry(parser: argparse.ArgumentParser, section: str) -> None:
    parser.add_argument(
        "--entry",
        metavar="LABEL",
        help=f"the entry of --config's section `{section}`; default: its only one",
    )


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the certificate authority and the token of a server that other machines can reach."""
    add = parser.add_argument
    add("--tls-ca", type=Path, metavar="FILE.pem", help="CA certificates that verify the server's")
    add(
        "--tls-name",
        metavar="NAME",
        help="name that its certificate is issued for; default: that of its address",
    )
    add(
        "--token-file", type=Path, metavar="FILE", help="file of the token that the server requires"
    )


def access(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `add_access` as a client of the service takes them."""
    return {key: getattr(args, key) for key in ("tls_ca", "tls_name", "token_file")}


def add_questions(parser: argparse.ArgumentParser, required: bool = True) -> None:
    add = parser.add_argument
    add_config(parser, "a configuration, whose labels the other options then use")
    add("--dataset", required=required, help="a data set; with --config, one of its labels")
    add("--data", type=Path, metavar="FILE", help="its official format (.jsonl, .jsonl.gz)")
    add("--seed", type=int, help="seed of the document order (0)")


def add_answered_questions(
    parser: argparse.ArgumentParser, exclude: Collection[str] = (), required: bool = True
) -> None:
    """Add the questions of a data set, the settings of the methods that answer them, and the model."""
    from ragauge.config.model import ModelEntry

    add_set(parser, "a parameter of the method; dataset.KEY=VALUE: an option of the data set")
    add_questions(parser, required)
    add_examples(parser)
    parser.add_argument(
        "--model",
        required=required,
        help=(
            "a name in the catalog, a source such as hf:org/name, or a folder; with --config, one "
            "of its labels"
        ),
    )
    add_settings(parser, ModelEntry, exclude, engine=registry.names("engine"))
    add_threads(parser, "threads of the decoder; default: all cores")


def add_reader(parser: argparse.ArgumentParser) -> None:
    """Add the decoder that reads neighbours, with its adapters."""
    add_decoder(parser)
    parser.add_argument(
        "--adapters",
        type=Path,
        metavar="FILE.safetensors",
        help="weights that `ragauge piperag retrofit` trained",
    )


def server(
    args: argparse.Namespace, model: ModelEntry, threads: int | None = None
) -> AbstractContextManager[object]:
    """Return the server that --serve starts for the model; nothing without it."""
    from ragauge.config.model import SERVED
    from ragauge.measure.servers import serving

    if args.serve is None:
        return nullcontext()
    if not model.served:
        raise UserError(f"--serve: starts a server of a model openai:NAME; --model is {args.model}")
    return serving(args.serve, model.source.removeprefix(SERVED), threads, model.served.environment)


def configuration(args: argparse.Namespace) -> Config | None:
    from ragauge.config import loading

    return loading.load(args.config) if args.config else None


def entry(section: Mapping[str, Any], name: str | None, what: str, where: str) -> Any:
    """Return the entry with that label, or the section's only one."""
    return section[label(section, name, what, where)]


def label(
    section: Mapping[str, Any], name: str | None, what: str, where: str, option: str = "--entry"
) -> str:
    """Return the label, if the section has it; None: the section's only one."""
    if not section:
        place, _, key = where.rpartition(": ")
        raise UserError(f"{place}: has no section `{key}`")
    if name is None:
        if len(section) == 1:
            return next(iter(section))
        raise UserError(
            f"{where}: {len(section)} of them; name one with {option}: {', '.join(section)}"
        )
    if name not in section:
        raise unknown(what, name, section, where)
    return name


def model(args: argparse.Namespace, config: Config | None, known: bool = True) -> ModelEntry:
    """Return the model of --model: a label of the configuration, or a name or source; options
    override both.
    """
    from ragauge.config.checks import check_source
    from ragauge.config.dtypes import on_this_machine
    from ragauge.config.model import SERVED, ModelEntry
    from ragauge.config.reading import checked_options
    from ragauge.io.records import recorded_dtype

    if config:
        labelled: ModelEntry = entry(config.models, args.model, "model", f"{args.config}: models")
        stated = labelled.model_dump()
    else:
        is_source = known and not args.model.startswith(SERVED)
        stated = {"source": check_source(args.model, "--model") if is_source else args.model}
    chosen = checked_options(ModelEntry, stated | given(args, ModelEntry))
    return on_this_machine(chosen, recorded_dtype(args.out), args.threads)


def questions(
    args: argparse.Namespace, config: Config | None, is_subject: bool = False
) -> QuestionSource:
    """Return the questions of --dataset: a label of the configuration, or a registered name.

    Args:
        is_subject: whether every --set is an option of the data set, not `dataset.KEY` alone.
    """
    from ragauge.assets.pins import Pin
    from ragauge.measure.inputs import QuestionSource

    examples = getattr(args, "examples", None)
    own, scoped = settings(args.set, "dataset")
    stated = {**own, **scoped} if is_subject else scoped
    if config is None:
        registry.module_name("dataset", args.dataset, "--dataset")
        return QuestionSource(args.dataset, {"seed": args.seed or 0, **stated}, args.data, examples)
    chosen: DatasetEntry = entry(
        config.datasets, args.dataset, "data set", f"{args.config}: datasets"
    )
    seed = first(args.seed, config.dataset_seed(args.dataset))
    official = args.data or (Path(chosen.data) if chosen.data else None)
    pin = None if args.data else Pin(revision=chosen.revision, sha256=chosen.sha256)
    return QuestionSource(
        chosen.dataset,
        {"seed": seed, **chosen.options, **stated},
        official,
        examples,
        pin,
        chosen.skip,
    )


def method(args: argparse.Namespace, name: str, config: Config | None) -> Method:
    """Return a variant of the configuration, or the method of that name, under --set."""
    from ragauge.methods.base import making

    parameters, _ = settings(args.set, "dataset")
    if config is None:
        registry.module_name("method", name, "--method")
        return making.make(name, f"--method {name}", **parameters)
    variant: VariantEntry = entry(config.methods, name, "variant", f"{args.config}: methods")
    stated = {**variant.instance.stated_options, **parameters}
    return making.make(variant.method, f"{args.config}: methods.{name}", **stated)


def settings(pairs: Sequence[str], scope: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the values of --set KEY=VALUE as YAML: (those of the verb's object, those of --set
    SCOPE.KEY=VALUE).
    """
    import yaml

    from ragauge.io import safe_yaml

    own = {}
    scoped = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise UserError(f"--set {pair!r}: must be key=value, as in --set top_k=2")
        try:
            value = safe_yaml.load(text)
        except yaml.YAMLError:
            raise UserError(
                f"--set {pair!r}: the value is not valid YAML; put it in quotes"
            ) from None
        if scope and key.startswith(f"{scope}."):
            scoped[key.removeprefix(f"{scope}.")] = value
        else:
            own[key] = value
    return own, scoped


def first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def write_json(path: Path, data: Any) -> None:
    from ragauge.io.files import write_file

    write_file(path, (json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n").encode())


def readable(result: Mapping[str, Any]) -> str:
    values = {
        key: json.dumps(v, ensure_ascii=False) if isinstance(v, dict | list) else v
        for key, v in result.items()
    }
    return "\n".join(f"{key:24} {value}" for key, value in values.items())


def print_result(args: argparse.Namespace, text: object, /, **result: Any) -> None:
    """Print a text, or with --json the result as one JSON object on the last line."""
    print(json.dumps(result, ensure_ascii=False, default=str) if args.json else text)
