"""What the tables share: the cells of a variant, of a method without one, and the paper's numbers beside both."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragauge.results import Cell, Measure, Runs, Variant, merge, published
from ragauge.results.publications import paper_model, predicted

NAMES = {"cuda_speedup": "measured_speedup_cuda"}  # columns of a published table that have another name here


def cells(runs: Runs, variant: Variant, measures: Mapping[str, Measure], **keys: Any) -> list[Cell]:
    """The cells of a variant's row, `keys` beside or in place of the variant's own."""
    of_paper, row = paper_model(variant, runs), variant.keys | keys
    return [Cell(row, quantity, measure, paper_model=of_paper) for quantity, measure in measures.items()]


def not_run(
    runs: Runs, dataset: str, model: str, row: str, quantities: Iterable[str], of_paper: str | None = None
) -> list[Cell]:
    """The cells of a method that has no records there, with the reason."""
    missing = [v for v in runs.variants if (v.dataset, v.model, v.row) == (dataset, model, row) and v.missing]
    why = f"{missing[0].missing} for variant {missing[0].name}" if missing else "not in this experiment"
    keys, reason = {"model": model, "dataset": dataset, "method": row}, Measure(reason=f"not run: {why}")
    return [Cell(keys, quantity, reason, paper_model=of_paper) for quantity in quantities]


def with_published(
    runs: Runs, measured: Sequence[Cell], item: str, on: Sequence[str], columns: Iterable[str], dataset: str = "nq_open"
) -> list[Cell]:
    """The measured cells, the published ones of an item's CSV, and what was predicted of those that were not measured.

    Args:
        on: the keys that, with the model, identify a row of the published table.
        columns: of the CSV, those that hold numbers.
    """
    keys = ("model", *on)
    printed = published(item, keys, {column: NAMES.get(column, column) for column in columns}, dataset)
    return merge(measured, printed, on, predicted(runs, item, keys, dataset))
