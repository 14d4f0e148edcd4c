"""What Tables 3 and 4 share: superposition with one option changed, everything else alike, compared in pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ragauge.rendering import Axis, Dots
from ragauge.results import Cell, Measure, Runs, Table, Variant, difference, find, frame, merge, published, quality
from ragauge.results.publications import paper_model


@dataclass(frozen=True)
class Ablation:
    """A table of superposition under several settings of one option, at every top_k run."""

    item: str  # the published table
    option: str
    settings: Sequence[str]  # the last one is the paper's choice, which the others are compared with

    def table(self, runs: Runs) -> Table:
        """Accuracy under each setting, and the paired differences `last - other`."""
        measured = [cell for group in runs.groups("single_hop") for cell in self._group(runs, *group)]
        printed = published(self.item, ("model", self.option), {"accuracy": "accuracy"}, "nq_open")
        values = {(c.paper_model, c.keys[self.option]): c.published for c in printed}
        *others, choice = self.settings
        for model, other in product(dict.fromkeys(c.paper_model for c in printed), others):
            a, b = values.get((model, choice)), values.get((model, other))
            if a is not None and b is not None:
                keys = {"model": model, "dataset": "nq_open", self.option: f"{choice} − {other}"}
                printed.append(Cell(keys, "accuracy_difference", published=round(a - b, 3), paper_model=model))
        return frame(("model", "dataset", self.option, "variant", "top_k"), merge(measured, printed, on=(self.option,)))

    @property
    def draw(self) -> Callable[[Table], Any]:
        """Accuracy under each setting, and the paired differences."""
        axes = {"accuracy": Axis("accuracy"), "accuracy_difference": Axis("paired difference", is_difference=True)}

        def name(line: Mapping[Any, Any]) -> str:
            return str(line[self.option]).replace("_", " ") + (f", k={line['top_k']}" if line["top_k"] else "")

        return Dots(axes, look=lambda line: str(line[self.option]), name=name)

    def _group(self, runs: Runs, dataset: str, model: str) -> Iterator[Cell]:
        swept = find(runs, dataset, model, "superposition")
        by_setting = {s: [v for v in swept if v.is_superposition(**{self.option: s})] for s in self.settings}
        pruned = [v.param("top_k") for variants in by_setting.values() for v in variants if v.prunes]
        # every top_k at which there is something to compare, else the smallest
        for top_k in sorted({k for k in pruned if pruned.count(k) > 1}) or sorted(set(pruned))[:1]:
            # one that keeps every document is compared at each top_k
            chosen = {
                setting: next((v for v in variants if not v.prunes or v.param("top_k") == top_k), None)
                for setting, variants in by_setting.items()
            }
            yield from self._cells(runs, chosen, {"dataset": dataset, "model": model, "top_k": top_k})

    def _cells(self, runs: Runs, chosen: Mapping[str, Variant | None], keys: Mapping[str, Any]) -> Iterator[Cell]:
        of_paper = next((paper_model(v, runs) for v in chosen.values() if v), None) if keys["top_k"] == 1 else None
        for setting, variant in chosen.items():
            name, missing = variant.name if variant else "", f"not run: no variant with {self.option}={setting}"
            measure = quality(runs, variant) if variant else Measure(reason=missing)
            yield Cell({**keys, self.option: setting, "variant": name}, "accuracy", measure, paper_model=of_paper)
        best = chosen[self.settings[-1]]
        for setting, variant in chosen.items():
            if best and variant and variant is not best:
                row = {self.option: f"{self.settings[-1]} − {setting}", "variant": f"{best.name} − {variant.name}"}
                measure = difference(runs, best, variant)
                yield Cell({**keys, **row}, "accuracy_difference", measure, paper_model=of_paper)
