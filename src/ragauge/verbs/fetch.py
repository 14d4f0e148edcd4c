"""Fetch and verify an asset; print its path."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("asset", help="a name in the catalog, hf:org/name, pypi:name==version, https://... or path:...")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write its source, hashes and path to this file")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge import assets
    from ragauge.io.redaction import redacted_values

    manifest = redacted_values(assets.fetch_named(args.asset))
    if args.out:
        options.write_json(args.out, manifest)
    options.tell(args, manifest["path"], **manifest)
