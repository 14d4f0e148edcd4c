"""What Tables 3 and 4 share: superposition with one option changed, everything else alike, compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.rendering import Axis, Figure, dots
from ragauge.results import (
    Cell,
    Measure,
    Runs,
    Table,
    Variant,
    difference,
    find,
    frame,
    merge,
    paper_model,
    published,
    quality,
)

Pair = tuple[str, str]  # of settings: the better one, the other


def table(runs: Runs, item: str, option: str, settings: Sequence[str]) -> Table:
    """Accuracy under each setting of `option`, at every top_k run, and the paired differences `last - other`.

    The last of the settings is the paper's choice.
    """
    pairs = [(settings[-1], other) for other in settings[:-1]]
    cells: list[Cell] = []
    for dataset, model in runs.groups("single_hop"):
        swept = find(runs, dataset, model, "superposition")
        found = {s: [v for v in swept if v.is_superposition(**{option: s})] for s in settings}
        for top_k in _top_ks(found):
            chosen = {setting: _at(variants, top_k) for setting, variants in found.items()}
            keys = {"dataset": dataset, "model": model, "top_k": top_k}
            cells += _cells(runs, option, chosen, pairs, keys)
    printed = published(item, ("model", option), {"accuracy": "accuracy"}, "nq_open")
    printed += _published_differences(printed, option, pairs)
    return frame(("model", "dataset", option, "variant", "top_k"), merge(cells, printed, on=(option,)))


def draw(table: Table, option: str) -> Figure:
    """Accuracy under each setting beside the paired differences."""
    names = [f"{row[0]}, k={row[1]}" if row[1] else row[0] for row in table[[option, "top_k"]].itertuples(index=False)]
    axes = {"accuracy": Axis("accuracy"), "accuracy_difference": Axis("paired difference", is_difference=True)}
    return dots.draw(table, table[option], axes, names=[n.replace("_", " ") for n in names])


def _top_ks(found: Mapping[str, Sequence[Variant]]) -> list[int]:
    """Every top_k at which there is something to compare, else the smallest; each gives a block of rows."""
    pruned = [v.param("top_k") for variants in found.values() for v in variants if v.prunes]
    compared = sorted({k for k in pruned if pruned.count(k) > 1})
    return compared or sorted(set(pruned))[:1]


def _cells(
    runs: Runs, option: str, chosen: Mapping[str, Variant | None], pairs: Sequence[Pair], keys: Mapping[str, Any]
) -> list[Cell]:
    """The cells of one top_k, from the variant of each setting."""
    of_paper = next((paper_model(v, runs) for v in chosen.values() if v), None) if keys["top_k"] == 1 else None
    cells = []
    for setting, variant in chosen.items():
        name = variant.name if variant else ""
        measure = quality(runs, variant) if variant else Measure(reason=f"not run: no variant with {option}={setting}")
        cells.append(Cell({**keys, option: setting, "variant": name}, "accuracy", measure, paper_model=of_paper))
    for better, worse in pairs:
        a, b = chosen[better], chosen[worse]
        if a and b:
            row = {**keys, option: f"{better} − {worse}", "variant": f"{a.name} − {b.name}"}
            cells.append(Cell(row, "accuracy_difference", difference(runs, a, b), paper_model=of_paper))
    return cells


def _at(found: Sequence[Variant], top_k: int) -> Variant | None:
    """The variant at that top_k; one that keeps every document stands beside each."""
    return next((v for v in found if not v.prunes or v.param("top_k") == top_k), None)


def _published_differences(printed: Sequence[Cell], option: str, pairs: Sequence[Pair]) -> list[Cell]:
    values = {(c.paper_model, c.keys[option]): c.published for c in printed}
    found = []
    for model in dict.fromkeys(c.paper_model for c in printed):
        for better, worse in pairs:
            a, b = values.get((model, better)), values.get((model, worse))
            if a is not None and b is not None:
                keys = {"model": model, "dataset": "nq_open", option: f"{better} − {worse}"}
                found.append(Cell(keys, "accuracy_difference", published=round(a - b, 3), paper_model=model))
    return found
