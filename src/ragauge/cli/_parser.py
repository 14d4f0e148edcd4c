"""The argument parsers of the command line: errors in one line that suggest the right spelling, and
help by group.
"""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ragauge import registry
from ragauge._version import __version__
from ragauge.errors import meant, unknown

# The verbs by topic, for the help.
GROUPS = {
    "study": ("study", "new", "init", "validate", "estimate"),
    "answer": ("run", "judge", "score", "compare"),
    "retrieve": ("index", "serve", "query", "piperag"),
    "train": ("sft",),
    "time": ("time", "load", "stream", "cost"),
    "report": ("report",),
    "this installation": ("list", "fetch", "cache", "doctor"),
}
WITHOUT_RESULT = ("serve", "study")  # verbs that print no result


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, and an unknown option before a missing one."""

    def parse_known_args(  # type: ignore[override]  # not generic in the namespace
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        arguments = list(sys.argv[1:] if args is None else args)
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--" or (self._subparsers and not argument.startswith("-")):
                break  # a step's parser knows the rest
            option = argument.partition("=")[0]
            if argument.startswith("--") and " " not in option and option not in known:
                near = meant(option, [one for one in known if one.startswith("--")])
                hint = f"; did you mean {near!r}?" if near else ""
                hint += "; parameters of methods: --set KEY=VALUE" if "--set" in known else ""
                self.error(f"unknown option {option!r}{hint}")
        return super().parse_known_args(arguments, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = (
                (action.metavar or action.dest)
                if isinstance(action, argparse._SubParsersAction)
                else "value"
            )
            raise argparse.ArgumentError(
                action, str(unknown(str(what).lower(), value, map(str, action.choices)))
            )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def command_parser(arguments: Sequence[str] | None = None) -> Parser:
    """Return the parser of a command line, with the options of the verb that it names, which alone
    is imported.
    """
    words = sys.argv[1:] if arguments is None else arguments
    named = next((word for word in words if not word.startswith("-")), "")
    parser = Parser(
        prog="ragauge",
        description="What retrieval-augmented generation costs and what it is worth.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ragauge {__version__}")
    verbs = parser.add_subparsers(
        required=True, metavar="VERB", parser_class=Parser, help="see below"
    )
    known = registry.names("verb")
    summaries = {}
    for name in [named] if named in known else known:
        # imported only where it is used
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        summaries[name] = source.partition("\n")[0].strip('"')
        verb = verbs.add_parser(name, description=summaries[name])  # the epilog has the summaries
        if name == named:
            _add_options(verb, name)
    parser.epilog = _grouped(summaries)
    return parser


def _add_options(parser: Parser, verb: str) -> None:
    module = registry.module("verb", verb)
    module.add_arguments(parser)
    parser.set_defaults(verb=module.run, quiet=False)
    for step in leaves(parser):
        if verb not in WITHOUT_RESULT:
            step.add_argument(
                "--json", action="store_true", help="print one JSON object on the last line"
            )
        step.add_argument(
            "--quiet", action="store_true", help="print only the result, warnings and errors"
        )


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers that take options: one without steps or with optional ones, and those of
    its steps.
    """
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not any(action.required for action in below):
        yield parser
    for action in below:
        for step in action.choices.values():
            yield from leaves(step)


def _grouped(summaries: dict[str, str]) -> str:
    width = shutil.get_terminal_size().columns - 2
    indent = 4 + max(map(len, summaries), default=0)
    lines = list[str]()
    for group, verbs in GROUPS.items():
        known = [verb for verb in verbs if verb in summaries]
        lines += [f"{group}:"] if known else []
        for verb in known:
            start = f"  {verb}".ljust(indent)
            lines += textwrap.wrap(start + summaries[verb], width, subsequent_indent=" " * indent)
    return "\n".join(lines)
