"""List the components of a kind, one per line."""

from __future__ import annotations

import argparse

from ragauge import registry

KINDS = {"methods": "method", "datasets": "dataset", "metrics": "metric", "items": "item", "indexes": "index"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("models", *KINDS))


def run(args: argparse.Namespace) -> None:
    if args.kind == "models":
        from ragauge.assets.catalog import entries

        names = sorted(name for name, entry in entries().items() if entry.kind == "model")
    else:
        names = registry.names(KINDS[args.kind])
    print("\n".join(names))
