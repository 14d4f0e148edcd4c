"""Write a run's page, a table or figure with its files, the provenance of a run, or the state of reproduction."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.io.files import write_file

STEPS = {
    "page": "a self-contained page with figures, tables, records and recommendations",
    "item": "a table or figure of a paper, from the records of a run",
    "provenance": "the settings, data, code and machine behind a run",
    "reproduction": "the state of every number that the papers print",
}
PAPER = Path("configs/papers/paper.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the four steps and the options of each."""
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        if name == "item":
            add("item", metavar="NAME", help="as in `ragauge list items`")
        if name == "reproduction":
            add("--config", type=Path, default=PAPER, metavar="FILE.yaml", help="the papers' experiments")
            add("--reports", type=Path, default=Path("reports"), metavar="FOLDER", help="rendered tables")
            add("--out", type=Path, metavar="FILE.md", help="default: reproduction.md in --reports")
        else:
            add("--config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
            add("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
            add("--out", type=Path, metavar="FOLDER", help="default: reports/<run>")


def run(args: argparse.Namespace) -> None:
    """Write the file that the step names, and print where it is."""
    from ragauge import report
    from ragauge.rendering import writing

    if args.step == "reproduction":  # needs neither records nor weights
        from ragauge.measure.predictions import predict
        from ragauge.report.reproduction import page
        from ragauge.results.planned import planned

        written = [args.out or args.reports / "reproduction.md"]
        tables = planned(loading.load(args.config), predict()["rows"])
        write_file(written[0], page(tables, args.reports).encode())
    else:
        config = loading.load(args.config)
        run = config, args.results or Path("results", config.run), args.out or Path("reports", config.run)
        write = {"page": report.write, "provenance": writing.write_provenance}.get(args.step)
        written = [write(*run)] if write else writing.render(args.item, *run)
    options.tell(args, "\n".join(map(str, written)), out=written if args.step == "item" else written[0])
