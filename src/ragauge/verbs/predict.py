"""Predict the compute cycles of the papers' own models from their shapes, for the tables to show beside the published.

Needs no weights and no data, and takes seconds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ragauge predict`."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    """Write the predictions."""
    from ragauge import predictions
    from ragauge.errors import UserError
    from ragauge.records import replace_atomically

    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(predictions.predict(), indent=1)
        replace_atomically(args.out, f"{text}\n".encode())
    except OSError as error:
        raise UserError(f"{args.out}: cannot be written: {error.strerror or error}") from error
    print(args.out)
