"""List the components of a kind, one per line."""

from __future__ import annotations

import argparse

from ragauge import registry
from ragauge.verbs import _options as options

ELSEWHERE = ("verb", "trainable form")  # the first are shown by --help, the second are forms
KINDS = {"indexes" if kind == "index" else f"{kind}s": kind for kind in registry.PACKAGES if kind not in ELSEWHERE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("models", *KINDS))
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    if args.kind == "models":
        from ragauge.assets.catalog import entries

        names = sorted(name for name, entry in entries().items() if entry.kind == "model")
    else:
        names = registry.names(KINDS[args.kind])
    options.tell(args, "\n".join(names), **{args.kind: names})
