"""Objects and results that `ragauge time`, `load` and `stream` share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from ragauge.cli import _options as options
from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings, TimedSettings
from ragauge.config.reading import checked_options
from ragauge.errors import UserError
from ragauge.methods.evidence.account import read_account

if TYPE_CHECKING:
    from ragauge.measure.inputs import QuestionSource
    from ragauge.methods.base.method import Method
    from ragauge.results.times import TimesFile, Watched

Settings = TypeVar("Settings", bound=TimedSettings)


def add_measured(
    parser: argparse.ArgumentParser, settings: type[TimedSettings], exclude: Collection[str] = ()
) -> None:
    """Add the methods, the questions, the model, the settings of a protocol and the file of the
    result. What names labels of a configuration, and `exclude`, are no options of the protocol.
    """
    add = parser.add_argument
    add(
        "--methods",
        type=options.names,
        metavar="M,...",
        help="methods; with --config, its variants",
    )
    options.add_answered_questions(parser, exclude={"engine"})
    options.add_serve(parser)
    add("--out", type=Path, required=True, metavar="FILE.json")
    labels = {"methods", "dataset", "models", "threads"}
    options.add_settings(parser, settings, labels.union(exclude))


def read(
    args: argparse.Namespace,
    kind: type[Settings],
    section: Callable[[Config], BaseModel | None],
    changes: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
) -> tuple[Settings, dict[str, Method], ModelEntry, ModelEntry | None, QuestionSource | None, int]:
    """Read the objects that the options name: a section of the configuration, if there is one,
    overridden by options.

    Args:
        changes: of the section, given the keys that the options state.

    Returns: the settings, the methods by name, the model, its finder where a method needs one, the
        questions (None: random weights, which answer random tokens) and the seed.

    Raises:
        UserError: no methods are named, or an option has no valid value.
    """
    config = options.configuration(args)
    configured = section(config) if config else None
    stated = {key: v for key, v in options.given(args, kind).items() if v is not None}
    values = {**(configured.model_dump() if configured else {}), **changes(stated)}
    if not values.get("methods"):
        raise UserError(
            "--methods: name the methods to measure, as in --methods naive,superposition"
        )
    settings = checked_options(kind, values)
    has_weights = not getattr(args, "random_weights", False)
    model = options.model(args, config, known=has_weights)
    finder = config.models[model.finder] if config and model.finder else None
    trained = read_account((finder or model).source)
    variants = {
        name: options.method(args, name, config).adapted_to_training(trained, name)
        for name in values["methods"]
    }
    if not any(variant.finds for variant in variants.values()):
        finder = None
    if finder and kind is not LatencySettings:
        raise UserError(
            f"--model: {args.model} has a finder; only `ragauge time` times such a pair"
        )
    if model.engine != "torch" and not model.served:
        raise UserError(
            f"--model: {args.model} has engine {model.engine!r}; "
            "models of 'torch' and served ones (openai:NAME) are timed"
        )
    questions = options.questions(args, config) if has_weights else None
    seed = options.first(args.seed, config and config.seed, 0)
    return settings, variants, model, finder, questions, seed


@contextmanager
def bench(
    args: argparse.Namespace,
    settings: TimedSettings,
    model: ModelEntry,
    questions: QuestionSource,
    number: int,
    new_tokens: int,
) -> Iterator[Any]:
    """The model, which --serve starts if it is behind a server, with the prompts of the first
    `number` questions; `new_tokens`: of the longest response.
    """
    from ragauge.measure import timing
    from ragauge.measure.protocols import served

    with options.ended_in_order(), options.server(args, model, args.threads):
        if model.served:
            with served.bench(questions, number, model, new_tokens) as there:
                yield there
        else:
            yield timing.bench_of_questions(questions, number, model, new_tokens, settings.threads)


def write_result(
    args: argparse.Namespace,
    result: TimesFile,
    runs: Sequence[Watched],
    text: str,
) -> None:
    """Write and print a result, with a warning where the times of `runs` were refused."""
    content = result.to_json()
    options.write_json(args.out, content)
    refused = [run.refused for run in runs if run.refused]
    if refused:
        problem = f"no summary of {len(refused)} of {len(runs)} measurements: {refused[0]}"
        print(f"ragauge: warning: {args.out}: {problem}", file=sys.stderr)
    options.print_result(args, text, out=args.out, **content)
