"""List the components of a kind, one per line, each with the package that it comes from."""

import argparse
import sys

from ragauge import registry
from ragauge.cli import _options as options

KINDS = {
    "indexes" if kind == "index" else f"{kind}s": kind
    for kind in registry.PACKAGES
    if kind != "verb"
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("models", *KINDS))


def run(args: argparse.Namespace) -> None:
    if args.kind == "models":
        from ragauge.assets.catalog import entries

        names = sorted(name for name, entry in entries().items() if entry.kind == "model")
        options.print_result(args, "\n".join(names), **{args.kind: names})
        return
    kind = KINDS[args.kind]
    origins = {name: registry.origin(kind, name) for name in registry.names(kind)}
    for name in origins:
        unusable = registry.problem(kind, name)
        if unusable:
            print(f"ragauge list: warning: {unusable}", file=sys.stderr)
    lines = (f"{name:{max(map(len, origins))}}  {origin}" for name, origin in origins.items())
    options.print_result(args, "\n".join(lines), **{args.kind: list(origins), "from": origins})
