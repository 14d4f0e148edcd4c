"""Shared parts of the tables: cells of a variant, of a method without one, of an ablation; the
paper's numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragauge.report.figures import Axis, Dots
from ragauge.results.cells import (
    Cell,
    Cells,
    Keys,
    Line,
    Measure,
    Measures,
    Table,
    frame,
    merge,
    noted,
    row_cells,
)
from ragauge.results.measures import difference, quality
from ragauge.results.publications import NAMES, paper_model, predicted, published
from ragauge.results.runs import Group, Runs, Variant, defaults
from ragauge.results.shortcuts import split

KEPT = "kept_gold_recall"  # whether the gold document is kept


def cells(variant: Variant, measures: Measures, **keys: Any) -> Cells:
    """The cells of a variant's row, `keys` added to or replacing the variant's own."""
    return row_cells(variant.keys | keys, measures, paper_model(variant))


def not_run(
    group: Group, row: str, quantities: Iterable[str], paper_name: str | None = None
) -> Cells:
    missing = (v for v in group.runs.variants if v.missing and v.group == group and v.row == row)
    known = (f"{variant.missing} for variant {variant.name}" for variant in missing)
    reason = Measure(reason=f"not run: {next(known, 'not in this experiment')}")
    return row_cells(group.keys | {"method": row}, dict.fromkeys(quantities, reason), paper_name)


def with_published(
    runs: Runs,
    measured: Sequence[Cell],
    item: str,
    keys: Sequence[str],
    on: Sequence[str],
    columns: Iterable[str],
    dataset: str = "nq_open",
) -> Table:
    """A table of the measured cells, the published ones of an item's CSV, and what was predicted of
    those that were not measured. `on` are the keys that, with the model, identify a row of the
    published table, `columns` those that hold numbers.
    """
    of_row = ("model", *on)
    quantities = {column: NAMES.get(column, column) for column in columns}
    printed = published(item, of_row, quantities, dataset)
    return frame(keys, merge(measured, printed, on, predicted(runs, item, of_row, dataset)))


@dataclass(frozen=True)
class Ablation:
    """A table of superposition under several settings of one option, at every top_k run."""

    item: str  # the published table
    option: str
    # the last one is the paper's choice, which the others are compared with
    settings: Sequence[str]
    free: Sequence[str] = ()  # options that may have any value, which the table's notes state

    def table(self, runs: Runs) -> Table:
        groups = [list(self._group(group)) for group in runs.groups("single_hop")]
        compared = [
            cells
            for cells in groups
            if any(cell.quantity == "accuracy_difference" for cell in cells)
        ]
        # A single setting is no ablation; where there is nothing else, it shows what was not run.
        measured = [cell for cells in compared or groups for cell in cells]
        printed = published(self.item, ("model", self.option), {"accuracy": "accuracy"}, "nq_open")
        choice = self.settings[-1]
        best = {c.paper_model: c.published or 0.0 for c in printed if c.keys[self.option] == choice}
        for cell in list(printed):
            if cell.keys[self.option] != choice:
                keys = {**cell.keys, self.option: f"{choice} − {cell.keys[self.option]}"}
                lead = round(best[cell.paper_model] - (cell.published or 0.0), 3)
                printed.append(
                    replace(cell, keys=keys, quantity="accuracy_difference", published=lead)
                )
        return frame(
            ("model", "dataset", self.option, "variant", "top_k"),
            merge(measured, printed, on=(self.option,)),
        )

    @property
    def draw(self) -> Callable[[Table], Any]:
        axes = {
            "accuracy": Axis("accuracy"),
            "accuracy_difference": Axis("paired difference", is_difference=True),
        }

        def name(line: Line) -> str:
            stated = [n for n in line["note"].split("; ") if n.partition(" ")[0] in self.free]
            k = [f"k={line['top_k']}"] if line["top_k"] else []
            return ", ".join([line[self.option].replace("_", " "), *k, *stated])

        return Dots(axes, look=lambda line: line[self.option], name=name)

    def _group(self, group: Group) -> Cells:
        swept = group.find("superposition")
        by_setting = {
            s: [v for v in swept if v.is_superposition(*self.free, **{self.option: s})]
            for s in self.settings
        }
        pruned = [
            v.param("top_k") for variants in by_setting.values() for v in variants if v.prunes
        ]
        # every top_k at which there is something to compare, else the smallest
        for top_k in sorted({k for k in pruned if pruned.count(k) > 1}) or sorted(set(pruned))[:1]:
            # one that keeps every document is compared at each top_k
            usable = {
                setting: [v for v in variants if not v.prunes or v.param("top_k") == top_k]
                for setting, variants in by_setting.items()
            }
            yield from self._cells(usable, group.keys | {"top_k": top_k})

    def _cells(self, usable: Mapping[str, Sequence[Variant]], keys: Keys) -> Cells:
        chosen = [(setting, variant) for setting, found in usable.items() for variant in found]
        paper_name = paper_model(chosen[0][1]) if keys["top_k"] == 1 else None
        for setting, found in usable.items():
            row = {**keys, self.option: setting}
            if not found:
                missing = Measure(reason=f"not run: no variant with {self.option}={setting}")
                yield Cell(row, "accuracy", missing, paper_model=paper_name)
            for variant in found:
                named = {**row, "variant": variant.name}
                measure = noted(quality(variant), *self._stated(variant))
                yield Cell(named, "accuracy", measure, paper_model=paper_name)
                yield Cell(named, "gold_kept", quality(variant, KEPT))
                yield from row_cells(named, split(variant))
        choice = self.settings[-1]
        for best in usable[choice][-1:]:
            for setting, variant in chosen:
                if variant is not best:
                    row = {
                        **keys,
                        self.option: f"{choice} − {setting}",
                        "variant": f"{best.name} − {variant.name}",
                    }
                    measure = noted(difference(best, variant), *self._stated(variant))
                    yield Cell(row, "accuracy_difference", measure, paper_model=paper_name)
                    yield Cell(row, "gold_kept_difference", difference(best, variant, KEPT))

    def _stated(self, variant: Variant) -> list[str]:
        """The values of the free options that are not at their defaults."""
        usual = defaults(variant.method)
        stated = {name: variant.options.get(name, usual[name]) for name in self.free}
        return [f"{name} {value}" for name, value in stated.items() if value != usual[name]]
