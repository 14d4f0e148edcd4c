"""Predict the compute cycles of the papers' own models from their shapes, shown beside the published ones in tables.

Needs no weights and no data, and takes seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Write the predictions."""
    from ragauge.evaluation import predictions

    options.write_json(args.out, predictions.predict())
    options.tell(args, args.out, out=args.out)
