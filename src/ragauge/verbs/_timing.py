"""What `ragauge time`, `load` and `stream` share: the objects that their options name, and how results are printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.evaluation.inputs import Questions
    from ragauge.experiment.schema import Config, ModelEntry
    from ragauge.methods import Method

Settings = TypeVar("Settings", bound=BaseModel)


class Measurement(NamedTuple, Generic[Settings]):
    """The objects that the options of a measurement name."""

    settings: Settings
    variants: dict[str, Method]
    model: ModelEntry
    questions: Questions | None  # None: random weights, which answer random tokens
    seed: int


def read(
    args: argparse.Namespace,
    config: Config | None,
    kind: type[Settings],
    configured: BaseModel | None,
    changes: Mapping[str, Any],
) -> Measurement[Settings]:
    """The objects that the options name: a section of the configuration, if there is one, overridden by the options.

    Args:
        configured: the section.
        changes: what the options say in its place.

    Raises:
        UserError: no methods are named, or an option has no valid value.
    """
    from ragauge.experiment.reading import checked_options

    made = {**(configured.model_dump() if configured else {"dataset": args.dataset}), **changes}
    if not made.get("methods"):
        raise UserError("--methods: name the methods to measure, as in --methods naive,superposition")
    settings = checked_options(kind, made)
    has_weights = not getattr(args, "random_weights", False)
    variants = {name: options.method(args, name, config)[1] for name in made["methods"]}
    model = options.model(args, config, known=has_weights)
    _check_timed(args, model)
    questions = options.questions(args, config) if has_weights else None
    seed = options.first(args.seed, config.seed if config else None, 0)
    return Measurement(settings, variants, model, questions, seed)


def _check_timed(args: argparse.Namespace, model: ModelEntry) -> None:
    """Raise UserError if --model names a model whose answers cannot be timed."""
    if model.finder:
        raise UserError(
            f"--model: {args.model} answers from evidence that another model finds; such a pair is not timed"
        )
    if model.engine != "torch":
        raise UserError(f"--model: {args.model} has engine {model.engine!r}; only models of 'torch' are timed")


def given(args: argparse.Namespace, kind: type[BaseModel], without: Collection[str] = ()) -> dict[str, Any]:
    """The keys of a section that the options state."""
    named = {key: getattr(args, key) for key in ("methods", "threads") if getattr(args, key)}
    return {**options.given(args, kind, {*named, "methods", "threads", "dataset", *without}), **named}


def tell(args: argparse.Namespace, result: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], text: str) -> None:
    """Write a result and say it on the screen, with a warning where the times of `runs` were refused."""
    options.write_json(args.out, result)
    if refused := [run["refused"] for run in runs if run["refused"]]:
        of = f"no summary of {len(refused)} of {len(runs)} measurements: {refused[0]}"
        print(f"ragauge: warning: {args.out}: {of}", file=sys.stderr)
    options.tell(args, text, out=args.out, **result)
