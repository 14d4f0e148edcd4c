"""Write a run's page, a table or figure with its files, the provenance of a run, or the state of reproduction."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The four steps and the options of each."""
    steps = parser.add_subparsers(required=True, metavar="STEP", dest="step")
    page = steps.add_parser("page", help="a self-contained page with figures, tables, records and recommendations")
    item = steps.add_parser("item", help="a table or figure of a paper, from the records of a run")
    item.add_argument("item", metavar="NAME", help="as in `ragauge list items`")
    provenance = steps.add_parser("provenance", help="the settings, data, code and machine behind a run")
    for step in (page, item, provenance):
        options.add_run_folders(step)
    reproduction = steps.add_parser("reproduction", help="the state of every number that the papers print")
    paper = Path("configs/papers/paper.yaml")
    reproduction.add_argument("--config", type=Path, default=paper, metavar="FILE.yaml", help="the papers' experiments")
    reproduction.add_argument("--reports", type=Path, default=Path("reports"), metavar="FOLDER", help="rendered tables")
    reproduction.add_argument("--out", type=Path, metavar="FILE.md", help="default: reproduction.md in --reports")
    options.add_json(reproduction)


def run(args: argparse.Namespace) -> None:
    """Write what the step names, and print where it is."""
    from ragauge import report
    from ragauge.rendering import writing

    if args.step == "reproduction":
        written = [_reproduction(args)]
    elif args.step == "item":
        written = writing.render(args.item, *options.rendered_run(args))
    else:
        write = report.write if args.step == "page" else writing.write_provenance
        written = [write(*options.rendered_run(args))]
    options.tell(args, "\n".join(map(str, written)), out=written if args.step == "item" else written[0])


def _reproduction(args: argparse.Namespace) -> Path:
    """Compare committed tables with what the papers' configuration plans; needs neither records nor weights."""
    from ragauge.evaluation.predictions import predict
    from ragauge.experiment import loading
    from ragauge.io.files import write_file
    from ragauge.report.reproduction import page
    from ragauge.results.planned import planned

    out: Path = args.out or args.reports / "reproduction.md"
    write_file(out, page(planned(loading.load(args.config), predict()["rows"]), args.reports).encode())
    return out
