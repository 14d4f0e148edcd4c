"""What Tables 3 and 4 share: superposition with one option changed, everything else alike, compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge.rendering import panels
from ragauge.rendering.style import Figure
from ragauge.results.cells import Cell, Measure, Table, frame, merge
from ragauge.results.measures import difference, find, quality
from ragauge.results.publications import paper_model, published
from ragauge.results.runs import Runs, Variant


def table(runs: Runs, item: str, option: str, settings: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Table:
    """Accuracy under each setting of `option`, at every top_k run, and the paired differences `better - worse`."""
    cells = []
    for dataset, model in runs.groups("single_hop"):
        for top_k in _top_ks(runs, dataset, model, option, settings):
            cells += _cells(runs, (dataset, model), option, settings, pairs, top_k)
    printed = published(item, ("model", option), {"accuracy": "accuracy"}, "nq_open")
    printed += _published_differences(printed, option, pairs)
    return frame(("model", "dataset", option, "variant", "top_k"), merge(cells, printed, on=(option,)))


def draw(table: Table, option: str) -> Figure:
    """Accuracy under each setting beside the paired differences."""
    names = [f"{row[0]}, k={row[1]}" if row[1] else row[0] for row in table[[option, "top_k"]].itertuples(index=False)]
    axes = {"accuracy": panels.Axis("accuracy"), "accuracy_difference": panels.Axis("paired difference", zero=True)}
    return panels.dots(table, table[option], axes, names=[n.replace("_", " ") for n in names])


def _top_ks(runs: Runs, dataset: str, model: str, option: str, settings: Sequence[str]) -> list[int]:
    """Every top_k at which there is something to compare, else the smallest; each gives a block of rows."""
    pruned = [v.param("top_k") for s in settings for v in _all(runs, dataset, model, option, s) if v.prunes]
    compared = sorted({k for k in pruned if pruned.count(k) > 1})
    return compared or sorted(set(pruned))[:1]


def _all(runs: Runs, dataset: str, model: str, option: str, setting: str) -> list[Variant]:
    return [v for v in find(runs, dataset, model, "superposition") if v.is_superposition(**{option: setting})]


def _cells(
    runs: Runs,
    group: tuple[str, str],
    option: str,
    settings: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    top_k: int,
) -> list[Cell]:
    chosen = {s: _at(_all(runs, *group, option, s), top_k) for s in settings}
    of_paper = next((paper_model(v, runs) for v in chosen.values() if v), None) if top_k == 1 else None
    keys: dict[str, Any] = {"dataset": group[0], "model": group[1], "top_k": top_k}
    cells = []
    for setting, variant in chosen.items():
        name = variant.name if variant else ""
        measure = quality(runs, variant) if variant else Measure(reason=f"not run: no variant with {option}={setting}")
        cells.append(Cell(keys | {option: setting, "variant": name}, "accuracy", measure, paper_model=of_paper))
    for better, worse in pairs:
        a, b = chosen[better], chosen[worse]
        if a and b:
            row = keys | {option: f"{better} − {worse}", "variant": f"{a.name} − {b.name}"}
            cells.append(Cell(row, "accuracy_difference", difference(runs, a, b), paper_model=of_paper))
    return cells


def _at(found: Sequence[Variant], top_k: int) -> Variant | None:
    """The variant at that top_k; one that keeps every document stands beside each."""
    return next((v for v in found if not v.prunes or v.param("top_k") == top_k), None)


def _published_differences(printed: Sequence[Cell], option: str, pairs: Sequence[tuple[str, str]]) -> list[Cell]:
    values = {(c.paper_model, c.keys[option]): c.published for c in printed}
    found = []
    for model in dict.fromkeys(c.paper_model for c in printed):
        for better, worse in pairs:
            a, b = values.get((model, better)), values.get((model, worse))
            if a is not None and b is not None:
                keys = {"model": model, "dataset": "nq_open", option: f"{better} − {worse}"}
                difference_ = Cell(keys, "accuracy_difference", published=round(a - b, 3), paper_model=model)
                found.append(difference_)
    return found
