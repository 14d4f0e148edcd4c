"""The argument parser of every verb: errors in one line that suggest the right spelling, and help by group."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ragauge.errors import meant, unknown

# What a person does with it. A verb of no group is shown at the end.
GROUPS = {
    "study": ("study", "new", "init", "validate", "estimate"),
    "answer": ("data", "run", "judge", "score", "compare"),
    "retrieve": ("index", "serve", "query", "staleness", "pipeline"),
    "train": ("sft", "retrofit", "export"),
    "time": ("time", "load", "stream", "cost"),
    "report": ("report", "publish"),
    "this installation": ("list", "fetch", "cache", "doctor", "completion"),
}


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, and an unknown option before a missing one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def parse_known_args(  # type: ignore[override]  # not generic in the namespace
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        arguments = list(sys.argv[1:] if args is None else args)
        for option in self._stated(arguments):
            if option not in self._option_string_actions:
                self.error(self._unknown(option))
        return super().parse_known_args(arguments, namespace)

    def _stated(self, arguments: Sequence[str]) -> Iterator[str]:
        """The options that this parser is to know, up to the verb or step whose parser knows the others."""
        for argument in arguments:
            if argument == "--" or (self._subparsers and not argument.startswith("-")):
                return
            if argument.startswith("--") and " " not in argument.partition("=")[0]:
                yield argument.partition("=")[0]

    def _unknown(self, option: str) -> str:
        known = [one for one in self._option_string_actions if one.startswith("--")]
        near = meant(option, known)
        return f"unknown option {option!r}" + (f"; did you mean {near!r}?" if near else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = (action.metavar or action.dest) if isinstance(action, argparse._SubParsersAction) else "value"
            raise argparse.ArgumentError(action, str(unknown(str(what).lower(), value, map(str, action.choices))))

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers that take options: one without steps or whose step may be left out, and those of its steps."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not any(action.required for action in below):
        yield parser
    for action in below:
        for step in action.choices.values():
            yield from leaves(step)


def grouped(texts: dict[str, str]) -> str:
    """The verbs and what each does, by group, for the help."""
    named = {verb for verbs in GROUPS.values() for verb in verbs}
    groups = {**GROUPS, "more": tuple(verb for verb in texts if verb not in named)}
    width = shutil.get_terminal_size().columns - 2
    indent = 4 + max(map(len, texts), default=0)
    lines = list[str]()
    for group, verbs in groups.items():
        there = [verb for verb in verbs if verb in texts]
        lines += [f"{group}:"] if there else []
        for verb in there:
            start = f"  {verb}".ljust(indent)
            lines += textwrap.wrap(texts[verb], width, initial_indent=start, subsequent_indent=" " * indent) or [start]
    return "\n".join(lines)
