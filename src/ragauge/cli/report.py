"""Write a run's page, a table or figure, its provenance, an archive to cite, or the state of
reproduction.
"""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.io.files import write_file

STEPS = {
    "page": "a self-contained page with figures, tables, records and recommendations",
    "item": "a table or figure of a paper, from the records of a run",
    "provenance": "the settings, data, code and machine behind a run, and the score of each question",
    "crate": "an RO-Crate: a described archive to cite; nothing is sent anywhere",
    "reproduction": "the state of every number that the papers print",
}
PAPER = Path("configs/papers/paper.yaml")
CLAIMS = Path("configs/papers/claims.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        if name == "item":
            add("item", metavar="NAME", help="as in `ragauge list items`")
        if name == "reproduction":
            add(
                "--config",
                type=Path,
                default=PAPER,
                metavar="FILE.yaml",
                help="the papers' experiments",
            )
            add(
                "--claims",
                type=Path,
                default=CLAIMS,
                metavar="CLAIMS.yaml",
                help="orderings that the papers claim",
            )
            add(
                "--reports",
                type=Path,
                default=Path("reports"),
                metavar="FOLDER",
                help="rendered tables",
            )
            add("--out", type=Path, metavar="FILE.md", help="default: reproduction.md in --reports")
        else:
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
    from ragauge.report.figures import writing
    from ragauge.results.runs import Runs

    if args.step == "reproduction":  # needs neither records nor weights
        written = _write_reproduction(args)
    else:
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
        elif args.step == "provenance":
            written = [writing.write_provenance(runs, args.out or reports)]
        else:
            written = writing.render(args.item, runs, args.out or reports)
    options.print_result(
        args, "\n".join(map(str, written)), out=written if args.step == "item" else written[0]
    )


def _write_reproduction(args: argparse.Namespace) -> list[Path]:
    import pandas as pd

    from ragauge.measure import predictions, recomputed
    from ragauge.report.page import reproduction
    from ragauge.results.directions import directions

    page = args.out or args.reports / "reproduction.md"
    runs = reproduction.planned(loading.load(args.config), predictions.predict()["rows"])
    rows = directions(args.claims, args.reports)
    figure_5 = [row for row in runs.predictions if row["item"] == "superposition_figure_5"]
    cells = reproduction.states(runs, args.reports, recomputed.recomputed())
    write_file(page, reproduction.page(cells, rows, figure_5, recomputed.figure_7()).encode())
    write_file(page.with_name("directions.csv"), pd.DataFrame(rows).to_csv(index=False).encode())
    return [page, page.with_name("directions.csv")]
