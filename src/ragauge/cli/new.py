"""Write a package that adds a component of your own, with a test that passes."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.errors import UserError
from ragauge.library import scaffold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=tuple(scaffold.MODULES))
    parser.add_argument("name", metavar="NAME", help="name of the component, such as last_first")
    parser.add_argument(
        "--kv", action="store_true", help="a method that stores, moves and rereads keys and values"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: ragauge-NAME")


def run(args: argparse.Namespace) -> None:
    if args.kv and args.kind != "method":
        raise UserError(f"--kv: goes with a method, not with a {args.kind}")
    out = args.out or Path(scaffold.package(args.name))
    files = scaffold.write(args.kind, args.name, out, kv=args.kv)
    lines = [*map(str, files), f"next: pip install -e {out} && pytest {out}"]
    options.print_result(args, "\n".join(lines), out=out, files=files)
