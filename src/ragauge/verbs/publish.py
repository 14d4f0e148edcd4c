"""Write a run for MLflow or Weights & Biases, or as an archive (RO-Crate); nothing is sent anywhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.publishing import FORMS

    add = parser.add_argument
    add("form", choices=FORMS, metavar="FORM", help=f"one of: {', '.join(FORMS)}")
    add("--config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
    add("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
    add("--reports", type=Path, metavar="FOLDER", help="form crate: the rendered run; default: reports/<run>")
    add("--license", metavar="SPDX", help="form crate: licence of the files, such as CC-BY-4.0; default: not stated")
    add("--out", type=Path, required=True, metavar="FOLDER", help="a new folder, or one that this verb wrote")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge import publishing
    from ragauge.errors import UserError
    from ragauge.experiment import schema
    from ragauge.results.runs import Runs

    for option in ("reports", "license"):
        if getattr(args, option) is not None and args.form != "crate":
            raise UserError(f"--{option}: not valid with form {args.form!r}")
    config = schema.load(args.config)
    results = args.results or Path("results") / config.run
    reports = args.reports or Path("reports") / config.run
    place = publishing.RunPlace(config.run, args.config, results, reports, args.out, args.license)
    runs = Runs(results, config)
    publishing.write(args.form, runs, place)
    options.tell(args, args.out, form=args.form, out=str(args.out), variants=len(runs.run))
