"""Fetch and verify an asset, or all that a configuration reads; print its path."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.errors import UserError
from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = "hf:org/name[@revision], pypi:name==version, https://... or path:..."
    parser.add_argument("asset", nargs="?", help=f"a name in the catalog, {forms}")
    options.add_config(parser, "fetch all that this configuration reads: models, encoders, corpora and data sets")
    locking = "write what was fetched to FILE.lock.json beside --config FILE.yaml, which later runs are held to"
    parser.add_argument("--lock", action="store_true", help=locking)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write an asset's source, hashes and path here")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    if (args.asset is None) == (args.config is None):
        raise UserError("fetch: give either an asset or --config FILE.yaml")
    if args.config is None and args.lock:
        raise UserError("--lock: only valid with --config; one asset is pinned where it is named")
    if args.config and args.out:
        raise UserError("--out: only valid with one asset; --lock writes down what a configuration reads")
    _fetch_all(args) if args.config else _fetch_one(args)


def _fetch_one(args: argparse.Namespace) -> None:
    from ragauge import assets
    from ragauge.io.redaction import redacted_values

    manifest = redacted_values(assets.fetch_named(args.asset))
    if args.out:
        options.write_json(args.out, manifest)
    options.tell(args, manifest["path"], **manifest)


def _fetch_all(args: argparse.Namespace) -> None:
    from ragauge.assets import pins
    from ragauge.experiment import loading, sources

    if args.lock:  # what a lock said before does not matter
        config = loading.parse(loading.read(args.config), str(args.config))
        pins.use_none()
    else:
        config = loading.load(args.config)
    found = sources.fetch(config, lock=args.lock)
    counted = {"assets": found.assets, "data sets": found.datasets, "corpora": found.corpora}
    told = ", ".join(f"{len(some)} {what}" for what, some in counted.items() if some) or "nothing to fetch"
    path = pins.beside(args.config) if args.lock else None
    if path:
        pins.write(path, found)
    options.tell(args, f"{path}: {told}" if path else told, lock=path, **found.model_dump(exclude_none=True))
