"""CFIC, Table 8: the number of prefixes k, in F1 and in the time to find evidence.

Shows F1 (a share; the paper prints per cent) at each k that was run, at one d, and the median milliseconds from the
question to the evidence from the latency rule, beside those of the same model writing its evidence down freely. Free
generation is one text here, as long at every k; the paper generates more of it as k grows. Where one model finds and
another answers, as in the paper (its F1 at k=3 is Table 3's with Llama 2), the times are the finder's.

Does not show: d (Figure 3). The paper's times are a mean over batches of 8 questions, of another model on another
machine, and have no ratio: these are of one question at a time.
"""

from __future__ import annotations

from dataclasses import replace

from ragauge.experiment.reads import ANY, Reads, defaults, every
from ragauge.items.cfic import _shared, _timing
from ragauge.rendering import Axis, Figure, Panel, lines
from ragauge.results import (
    LONGBENCH,
    OTHER_MODEL,
    Cell,
    Measure,
    Runs,
    Table,
    Variant,
    frame,
    noted,
    quality,
    read_csv,
    timing,
)

KEYS = ("model", "dataset", "series", "k", "variant")
LATENCY, WITHOUT = "decoding_latency_ms", "latency_without_strategies_ms"
TIMES = {LATENCY: ("CFIC", "cfic"), WITHOUT: ("without decoding strategies", "free_extraction")}
PUBLISHED = {"latency_ms": LATENCY, "latency_without_strategies_ms": WITHOUT}
PAPER = "the paper's 7B model"
ONE_TEXT = "one text, the same at every k"
UNTIMED = Measure(reason="not timed: no variant of method free_extraction is")

READS = Reads(answers=(every("free_extraction"), defaults("cfic", top_k=ANY, d=ANY)), datasets="long", latency="long")


def table(runs: Runs) -> Table:
    """One line for each (model, data set, k, quantity)."""
    measured = [cell for group in runs.groups(READS.datasets) for cell in _group(runs, *group)]
    return frame(KEYS, measured + _published())


def draw(table: Table) -> Figure:
    """F1 above, milliseconds below, against k; a column a model and data set."""
    table = table.assign(dataset=[name.removeprefix(LONGBENCH) for name in table["dataset"]])
    f1 = lines.points(table, "k", "f1", lambda row: f"F1, {row.keys['series']}")
    times = [
        replace(point, line=name, look=look)
        for quantity, (name, look) in TIMES.items()
        for point in lines.points(table, "k", quantity)
    ]
    parts = [
        {title: p for title, p in lines.by_panel(found).items() if len({q.x for q in p}) > 1} for found in (f1, times)
    ]
    titles = sorted(dict.fromkeys([*parts[0], *parts[1]]), key=lambda title: title.startswith("published"))
    axes = Axis("F1", from_zero=True), Axis("ms to the evidence", from_zero=True)
    panels = [
        Panel(title, Axis("k"), y, part.get(title, ())) for part, y in zip(parts, axes, strict=True) for title in titles
    ]
    return lines.draw(panels, columns=len(titles), height_in=1.8)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    best = _shared.main(runs, dataset, model)
    swept = [v for v in runs.of(dataset, model) if best and _shared.is_cfic(v) and v.param("d") == best.param("d")]
    free = next((v for v in runs.of(dataset, model) if v.method == "free_extraction"), None)
    cells = []
    for variant in sorted(swept, key=lambda v: v.param("top_k")):
        keys = {"model": model, "dataset": dataset, "series": f"d={variant.param('d')}", "k": variant.param("top_k")}
        measures = {"f1": quality(runs, variant, "f1")} | _times(runs, dataset, variant, free)
        cells += [Cell(keys | {"variant": variant.name}, q, m) for q, m in measures.items()]
    return cells


def _times(runs: Runs, dataset: str, variant: Variant, free: Variant | None) -> dict[str, Measure]:
    finder = _timed_finder(runs, dataset, variant.model)
    if finder is not None:
        return _finders_times(runs, dataset, variant, finder)
    base = _shared.base_of(runs, variant.model)
    if base is not None and timing.find(runs, dataset, variant.model) is None:
        note = Measure(reason=f"not timed: as fast as {base}, of which it was made")
        return {LATENCY: note, WITHOUT: note}
    without = Measure(reason="not run: no variant of method free_extraction in this experiment")
    if free is not None:
        without = noted(_timing.finding(runs, dataset, free), ONE_TEXT)
    return {LATENCY: _timing.finding(runs, dataset, variant), WITHOUT: without}


def _timed_finder(runs: Runs, dataset: str, model: str) -> str | None:
    """The model that finds evidence for another, where it was timed."""
    entry = runs.config.models.get(model) if runs.config else None
    finder = entry.finder if entry else None
    return finder if finder and timing.find(runs, dataset, finder) is not None else None


def _finders_times(runs: Runs, dataset: str, variant: Variant, finder: str) -> dict[str, Measure]:
    """A pair's times to the evidence, which its finder finds in the same way for itself."""
    note = f"of its finder, {finder}"
    latency = timing.find(runs, dataset, finder)
    timed = _timing.variants(runs, latency) if latency else []
    free = next((v for v in timed if v.method == "free_extraction"), None)
    found = {LATENCY: noted(_timing.finding(runs, dataset, runs.named(finder, variant.name)), note)}
    without = noted(_timing.finding(runs, dataset, free), note, ONE_TEXT) if free else UNTIMED
    return {**found, WITHOUT: without}


def _published() -> list[Cell]:
    cells = []
    for line in read_csv("cfic_table_8"):
        row = {"dataset": LONGBENCH + line["dataset"], "series": "d=256", "k": int(line["k"])}
        keys, note = {"model": PAPER, **row}, Measure(note=OTHER_MODEL)
        cells.append(Cell(keys, "f1", note, round(float(line["f1"]) / 100, 4)))
        cells += [Cell(keys, quantity, note, float(line[column])) for column, quantity in PUBLISHED.items()]
    return cells
