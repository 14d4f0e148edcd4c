"""Write a run's page, a table or figure, its provenance, or an archive to cite."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading

STEPS = {
    "page": "a self-contained page with figures, tables, records and recommendations",
    "item": "a table or figure of a paper, from the records of a run",
    "provenance": "the settings, data, code and machine behind a run, and the score of each question",
    "crate": "an RO-Crate: a described archive to cite; nothing is sent anywhere",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        if name == "item":
            add("item", metavar="NAME", help="as in `ragauge list items`")
        add(
            "--config",
            type=Path,
            required=True,
            metavar="FILE.yaml",
            help="the run's configuration",
        )
        add("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
        if name == "crate":
            add(
                "--reports",
                type=Path,
                metavar="FOLDER",
                help="the rendered run; default: reports/<run>",
            )
            add(
                "--license",
                metavar="SPDX",
                help="licence of the files, such as CC-BY-4.0; default: not stated",
            )
        default = (
            "a new folder, or one that this verb wrote"
            if name == "crate"
            else "default: reports/<run>"
        )
        add("--out", type=Path, required=name == "crate", metavar="FOLDER", help=default)


def run(args: argparse.Namespace) -> None:
    from ragauge.config.plan.part import RunPaths
    from ragauge.report.figures import writing
    from ragauge.results.runs import Runs
    from ragauge.study import recommendation
    from ragauge.study.writing import RETRIEVAL

    config = loading.load(args.config)
    runs = Runs(args.results or Path("results", config.run), config)
    reports = Path("reports", config.run)
    if args.step == "crate":
        from ragauge.report.page import crate

        crate.write(runs, args.config, args.reports or reports, args.out, args.license)
        written = [args.out]
    elif args.step == "page":
        from ragauge.report.page import page

        written = [page.write(runs, args.out or reports)]
        if args.config == Path(RunPaths(config.run).settings) and Path(RETRIEVAL).is_file():
            recommendation.print_recommended(Path(), config.run)  # of a study, in its folder
    elif args.step == "provenance":
        written = [writing.write_provenance(runs, args.out or reports)]
    else:
        written = writing.render(args.item, runs, args.out or reports)
    options.print_result(
        args, "\n".join(map(str, written)), out=written if args.step == "item" else written[0]
    )
