"""PipeRAG, Table 2: what a stale query finds beside what a fresh one finds.

Shows the cosine of the nearest chunks of a query and of the same query some tokens earlier, by how many tokens, over
held-out text; `same_chunk` is the share of queries for which the two are one chunk.

Does not show: what staleness costs in perplexity (Figure 10). The paper compares with another encoder over corpora of
hundreds of millions of chunks, in which more is alike than in a small one; where encoder and data set have the paper's
names, its numbers stand beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ragauge.rendering import panels, pipelines_footer, piperag_panels
from ragauge.results import pipelines
from ragauge.results.cells import Cell, Measure, frame
from ragauge.results.publications import read_csv
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KEYS = ("model", "dataset", "index", "nprobe", "stale_tokens", "variant")  # model: the encoder that compares
ENCODER = "msmarco-bert-base-dot-v5"
COSINE, SAME = "cosine_similarity", "same_chunk"
OTHER = "published for another encoder and corpus"
footer = pipelines_footer.of_comparisons

READS = Reads(staleness=True)


def table(runs: Runs) -> pd.DataFrame:
    """One line for each (encoder, data set, index, stale tokens, quantity), then the paper's."""
    printed = {(row["dataset"], row["stale_tokens"]): float(row["cosine_similarity"]) for row in _paper()}
    cells = [cell for report in pipelines.comparisons(runs) for cell in _measured(runs, report, printed)]
    beside = {(c.keys["dataset"], c.keys["stale_tokens"]) for c in cells if c.published is not None}
    rest = {key: value for key, value in printed.items() if key not in beside}
    return frame(KEYS, cells + [_published(dataset, stale, value) for (dataset, stale), value in rest.items()])


def draw(table: pd.DataFrame) -> Figure:
    """Cosine against stale tokens on a base-2 scale; a panel an encoder, measured and published."""
    points = []
    for line in table[table["quantity"] == COSINE].to_dict("records"):
        for source in ("measured", "published"):
            x, y, mine = float(line["stale_tokens"]), line[source], source == "measured"
            if x > 0 and math.isfinite(y):
                points.append(_point(line, x, y, mine))
    return piperag_panels.draw(points, panels.Axis("stale tokens", base2=True), panels.Axis("cosine similarity"))


def _point(line: Mapping[Any, Any], x: float, y: float, mine: bool) -> piperag_panels.Point:
    bounds = (line["low"], line["high"]) if mine else (math.nan, math.nan)
    name = f"{line['dataset']}, index {line['index']}" if mine else f"{line['dataset']} (the paper)"
    panel = f"{'' if mine else 'published: '}{line['model']}"
    return piperag_panels.Point(panel, name, str(line["dataset"]), x, y, y_interval=bounds, published=not mine)


def _paper() -> list[dict[str, str]]:
    """Its lines; zero stale tokens are the query itself."""
    return [row for row in read_csv("piperag_table_2") if row["stale_tokens"] != "0"]


def _published(dataset: str, stale: str, value: float) -> Cell:
    return Cell(_keys(ENCODER, dataset, stale), COSINE, Measure(note=OTHER), value)


def _keys(encoder: str, dataset: str, stale: str, **more: str) -> dict[str, str]:
    return {"model": encoder, "dataset": dataset, "stale_tokens": stale, **more}


def _measured(runs: Runs, report: Mapping[str, Any], printed: Mapping[tuple[str, str], float]) -> Iterator[Cell]:
    if report.get("missing"):
        yield Cell({k: report[k] for k in KEYS if k in report}, COSINE, Measure(note=f"not run: {report['missing']}"))
        return
    encoder, dataset = str(report["encoder"]).rpartition("/")[2].rpartition(":")[2], str(report["dataset"])
    index = str(report["index"]) + (f" (filled: {report['filled']:,})" if report.get("filled") else "")
    for place, stale in enumerate(report["stale_tokens"]):
        more = {"index": index, "nprobe": str(report["nprobe"]), "variant": report["label"]}
        keys = _keys(encoder, dataset, str(stale), **more)
        published = printed.get((dataset, str(stale))) if encoder == ENCODER else None
        yield Cell(keys, COSINE, _mean(runs, [q["cosine"][place] for q in report["queries"]]), published)
        yield Cell(keys, SAME, _mean(runs, [_same(q["chunks"], place) for q in report["queries"]]))


def _same(chunks: list[int], place: int) -> float | None:
    """1 where the stale query's nearest chunk is the fresh one's; None where either found nothing."""
    fresh, stale = chunks[0], chunks[1 + place]
    return None if min(fresh, stale) < 0 else float(fresh == stale)


def _mean(runs: Runs, values: list[float | None]) -> Measure:
    from ragauge.results.stats import bootstrap_interval

    known = [v for v in values if v is not None and math.isfinite(v)]
    note = f"{len(values) - len(known)} of {len(values)} queries found nothing" if len(known) < len(values) else ""
    if not known:
        return Measure(note=note or "no query")
    low, high = bootstrap_interval(known, seed=runs.seed) if len(known) > 1 else (None, None)
    return Measure(sum(known) / len(known), low, high, len(known), note=note)
