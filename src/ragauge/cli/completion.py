"""Print a shell's completion script: verbs, options, and the names that options take."""

from __future__ import annotations

import argparse

from ragauge import registry

COMPONENTS = ("method", "dataset", "metric", "item")  # kinds that options and positionals name, also in the plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(args: argparse.Namespace) -> None:
    import shtab

    from ragauge.cli._parser import command_parser

    parser = command_parser(every_verb=True)
    _add_names(parser)
    print(shtab.complete(parser, shell=args.shell, root_prefix="ragauge"))


def _add_names(parser: argparse.ArgumentParser) -> None:
    """Set the choices of options that name a component or a model; other values are completed as files."""
    import shtab

    from ragauge.assets.catalog import entries

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_names(below)
        elif action.choices is None and action.nargs != 0:
            if str(action.metavar).startswith("{"):
                action.choices = str(action.metavar).strip("{}").split(",")
            elif action.dest == "model":
                action.choices = [name for name, entry in entries().items() if entry.kind == "model"]
            elif (kind := action.dest.removesuffix("s")) in COMPONENTS:
                action.choices = registry.names(kind)
            else:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
