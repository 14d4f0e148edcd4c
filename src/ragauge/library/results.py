"""The records of answers, as tables, tests and a figure."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ragauge import registry
from ragauge.errors import UserError, explain_missing_extra, unknown
from ragauge.io.jsonl import JsonObject
from ragauge.results.costs import costs, critical_path_cycles, online_cycles, speedup
from ragauge.results.measures import difference, quality, scored
from ragauge.results.runs import Runs, Variant

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ANSWER = {"key", "status", "reason", "question", "prediction"}
SECONDS = {"offline_s", "online_s", "first_token_s"}


class Results:
    """The records of a folder: of `evaluate`, or of the workflow (`results/<run>`)."""

    # a temporary folder goes with this object
    def __init__(self, folder: Path, *, temporary: bool = False) -> None:
        self.folder = folder
        self._removal = (
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True) if temporary else None
        )
        self._runs = Runs(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Load the results in a folder that `evaluate`, `ragauge run` or the workflow wrote.

        Raises:
            UserError: there are no records in it.
        """
        results = cls(Path(folder))
        if not results._runs.run:
            raise UserError(f"{folder}: holds no records: no answers/DATASET/MODEL/VARIANT.jsonl")
        return results

    def to_pandas(self) -> pd.DataFrame:
        """Tabulate one row a question and variant: the prediction, every metric of the data set,
        and the costs.

        A failed question has its reason, and 0 in every metric that applies to it. `online_cycles`
        are multiply-accumulates that a user waits for.
        """
        import pandas as pd

        return pd.DataFrame([row for variant in self._runs.run for row in self._rows(variant)])

    def summary(self) -> pd.DataFrame:
        """Tabulate one row a variant: its quality, what a user waits for, and its speedup.

        Quality is the mean of the primary metric with its 95% interval; `online_cycles`
        are means, `online_s` are medians; the speedup is in cycles to the first token, over `naive`
        where that has run.
        """
        import pandas as pd

        return pd.DataFrame([self._summary(variant) for variant in self._runs.run])

    def compare(self, base: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Test pairs of variants on the questions that both answered.

        Args:
            base: a variant, with which the others are compared; None: every pair.
            metric: its name; None: the data set's primary one.

        Returns:
            One row a pair: `a`, `b`, mean `difference` (a - b) with its 95% interval
                (`low`, `high`), `p` of random flips of the differences' signs, `n` questions;
                `note` says why there is none. Nothing corrects p for the number of pairs.

        Raises:
            UserError: no such variant or metric.
        """
        import pandas as pd

        if metric is not None:
            registry.module_name("metric", metric, "compare")
        names = {variant.name for variant in self._runs.run}
        if base is not None and base not in names:
            raise unknown("variant", base, names, "compare")
        pairs = list[tuple[Variant, Variant]]()
        for group in self._runs.groups():
            if base is None:
                pairs += combinations(group.variants, 2)
            else:
                pairs += ((a, b) for a, b in permutations(group.variants, 2) if b.name == base)
        rows = []
        for a, b in pairs:
            test = difference(a, b, metric)
            row = {
                "dataset": a.dataset,
                "model": a.model,
                "metric": metric or a.primary_metric,
                "a": a.name,
                "b": b.name,
                "difference": test.value,
                "low": test.low,
                "high": test.high,
                "p": test.p,
                "n": test.n,
                "note": test.reason,
            }
            rows.append(row)
        return pd.DataFrame(rows)

    @explain_missing_extra()
    def plot_frontier(self) -> Figure:
        """Draw quality against what a user waits for, in cycles and in seconds: the item `frontier`
        of a report.
        """
        item = registry.module("item", "frontier")
        return item.draw(item.table(self._runs))

    def __repr__(self) -> str:
        run = self._runs.run
        questions = sum(len(variant.records) for variant in run)
        where = "a temporary folder" if self._removal else self.folder
        return f"<Results: {len(run)} variants, {questions} answers in {where}>"

    def _repr_html_(self) -> str:
        return self.summary().to_html(index=False, float_format="{:.4g}".format, na_rep="")

    def _rows(self, variant: Variant) -> Iterator[JsonObject]:
        metrics = {name: scored(variant, name) for name in self._runs.metrics(variant.dataset)}
        cycles = costs(variant, online_cycles)
        for key, record in variant.records.items():
            yield {
                **_names(variant),
                **record.model_dump(include=ANSWER),
                **{name: scores.get(key) for name, scores in metrics.items()},
                "kept": len(record.kept),
                "online_cycles": cycles.get(key),
                **record.model_dump(include=SECONDS),
            }

    def _summary(self, variant: Variant) -> JsonObject:
        score = quality(variant)
        cycles = list(costs(variant, online_cycles).values())
        seconds = variant.values("online_s")
        return {
            **_names(variant),
            "questions": len(variant.records),
            "failed": len(variant.failed),
            "metric": variant.primary_metric,
            "quality": score.value,
            "low": score.low,
            "high": score.high,
            "online_cycles": sum(cycles) / len(cycles) if cycles else None,
            "speedup": speedup(variant, critical_path_cycles, critical_path_cycles).value,
            "online_s": median(seconds) if seconds else None,
        }


def _names(variant: Variant) -> dict[str, str]:
    return {
        "dataset": variant.dataset,
        "model": variant.model,
        "variant": variant.name,
        "method": variant.method,
    }
