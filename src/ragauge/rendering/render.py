"""Renders an item: its table and figure, and the provenance of everything in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.rendering import footer
from ragauge.results.cells import Table
from ragauge.results.runs import Runs


def render(item: str, config: Any, results_dir: Path, out_dir: Path) -> list[Path]:
    """Write `<item>.{csv,md,tex,svg,pdf,png}` below `out_dir` from what there is; returns their paths.

    Args:
        item: the name of an item.
        config: the ragauge.experiment.schema.Config of the run, or None; it tells what was asked for and is not there.
        results_dir: the run's folder, `results/<run>`.
        out_dir: usually `reports/<run>`.

    Raises:
        UserError: unknown item, or a results file that cannot be read.
    """
    module = registry.module("item", item)
    from ragauge.rendering import writing

    runs = Runs(Path(results_dir), config)
    table = module.table(runs)
    figure, about = module.draw(table), module.__doc__ or item
    return writing.write(item, table, figure, about, small_print(item, runs, table), Path(out_dir))


def small_print(item: str, runs: Runs, table: Table) -> str:
    """The line below an item's table and figure: its own `footer`, or that of questions that were answered."""
    return str(getattr(registry.module("item", item), "footer", footer.footer)(runs, table))


def write_provenance(config: Any, results_dir: Path, out_dir: Path) -> Path:
    """Write `provenance.json` below `out_dir`: settings, data, code and machine of everything in `results_dir`."""
    import json

    from ragauge.io.files import write_file
    from ragauge.results.provenance import describe

    path = Path(out_dir) / "provenance.json"
    text = json.dumps(describe(Runs(Path(results_dir), config)), indent=1, ensure_ascii=False)
    write_file(path, f"{text}\n".encode())
    return path
