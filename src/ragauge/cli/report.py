"""Write a run's page, a table or figure, or its provenance."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading

STEPS = {
    "page": "a self-contained page with figures, tables, records and recommendations",
    "item": "a table or figure of a paper, from the records of a run",
    "provenance": "the settings, data, code and machine behind a run, and the score of each question",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        if name == "item":
            add("item", metavar="NAME", help="as in `ragauge list items`")
        options.add_config(step, "the run's configuration", required=True)
        add("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
        add("--out", type=Path, metavar="FOLDER", help="default: reports/<run>")


def run(args: argparse.Namespace) -> None:
    from ragauge.config.plan.part import RunPaths
    from ragauge.report.figures import writing
    from ragauge.results.runs import Runs
    from ragauge.study import recommendation
    from ragauge.study.writing import RETRIEVAL

    config = loading.load(args.config)
    runs = Runs(args.results or Path("results", config.run), config)
    out = args.out or Path("reports", config.run)
    if args.step == "page":
        from ragauge.report.page import page

        written = [page.write(runs, out)]
        if args.config == Path(RunPaths(config.run).settings) and Path(RETRIEVAL).is_file():
            recommendation.print_recommended(Path(), config.run)  # of a study, in its folder
    elif args.step == "provenance":
        written = [writing.write_provenance(runs, out)]
    else:
        written = writing.render(args.item, runs, out)
    options.print_result(
        args, "\n".join(map(str, written)), out=written if args.step == "item" else written[0]
    )
