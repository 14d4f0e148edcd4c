"""Fetch and verify an asset; print where it lies."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("asset", help="a name of the catalog, hf:org/name, pypi:name==version, https://... or path:...")
    parser.add_argument("--manifest", type=Path, metavar="FILE.json", help="write source, hashes and path there")


def run(args: argparse.Namespace) -> None:
    from ragauge import assets

    manifest = assets.fetch_named(args.asset)
    if args.manifest:
        options.write_json(args.manifest, manifest)
    print(manifest["path"])
