"""CFIC, Table 6: the time to find evidence, by stage, with and without the two decoding strategies.

What this shows: the median milliseconds from the question to the evidence, with the document
already read: for CFIC with its stages (reading the question, prefix decoding, skip decoding) and
for the same model writing its evidence freely; the tokens of document and evidence; the sequential
tokens of prefix decoding; and the speedup of CFIC in the same interleaved trials of the latency
rule.

Limits: reading the document (offline) and generating the answer are the same for both and left out.
The paper's times are of its 7B model on its GPU and have no ratio; it does not say in which stage
the question is read.
"""

from collections.abc import Iterator
from typing import Any

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axes, Figure, style
from ragauge.report.items.cfic import _shared
from ragauge.results import timing
from ragauge.results.cells import Cell, Measure, Table, frame, mean, row_cells
from ragauge.results.measures import evidence_quality
from ragauge.results.publications import LONGBENCH, read_csv
from ragauge.results.runs import Runs, Variant

KEYS = ("model", "dataset", "system", "variant")
LATENCY = "decoding_latency_ms"
FREE = "without_decoding_strategies"
PAPER = "the paper's 7B models"
QUANTITIES = ("input_tokens", "output_tokens", LATENCY)
NAMES = {"cfic": "CFIC", FREE: "without strategies", "longalpaca_7b": "LongAlpaca"}
STAGES = {
    "query": "#BBBBBB",
    "prefix": "#0072B2",
    "skip": "#E69F00",
    "rest": "#E4E4E4",
    "free": "#666633",
}
# of the stages
WORDS = (
    "reading the question",
    "prefix decoding",
    "skip decoding",
    "other work",
    "free generation",
)

ANSWERS = every("free_extraction"), defaults("cfic", top_k=ANY, d=ANY)
READS = Reads(ANSWERS, datasets="long", trained=False, latency="long")


def table(runs: Runs) -> Table:
    cells = [cell for group in _shared.timed_groups(runs) for cell in _group(runs, *group)]
    steps = {line["dataset"]: line["value"] for line in read_csv("cfic_statements")}
    note = Measure(note="published; of another model on another machine")
    for line in read_csv("cfic_table_6"):
        keys = {"model": PAPER, "dataset": LONGBENCH + line["dataset"], "system": line["system"]}
        cells += [Cell(keys, q, note, float(line[q])) for q in QUANTITIES if line[q]]
        if line["system"] == "cfic":
            cells.append(Cell(keys, "prefix_steps", note, float(steps[line["dataset"]])))
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    """A bar a system, in its stages; a panel a model and data set, the paper's shaded."""
    from matplotlib.patches import Patch

    timed = table[
        (table["quantity"] == LATENCY) & (table["measured"].notna() | table["published"].notna())
    ]
    panels = list(timed.groupby(["model", "dataset"], sort=False))
    if not panels:
        return style.empty("Nothing to draw yet: nothing was timed.")
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with style.theme():
        figure = style.figure(style.TEXT_IN, 1.15 * rows + 0.5)
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for ax, (key, part) in zip(grid, panels, strict=False):
            _panel(ax, part, *map(str, key))
        for ax in grid[len(panels) :]:
            ax.set_visible(False)
        pairs = zip(STAGES.values(), WORDS, strict=True)
        style.legend(figure, [Patch(color=colour, label=text) for colour, text in pairs], columns=5)
        return figure


def _group(runs: Runs, dataset: str, model: str) -> Iterator[Cell]:
    cfic, free = _systems(runs, dataset, model)
    if cfic is not None:
        yield from _system(runs, dataset, "cfic", cfic)
        for stage in () if _shared.why_not(runs, dataset, model) else _shared.STAGES:
            keys = _keys(dataset, cfic, f"cfic_{stage}_stage")
            yield Cell(keys, LATENCY, _shared.finding(runs, dataset, cfic, stage))
    if free is not None:
        yield from _system(runs, dataset, FREE, free)
    if cfic is not None and free is not None:
        yield Cell(_keys(dataset, cfic, "cfic"), *_shared.speedup(runs, dataset, free, cfic))
    elif cfic is not None:
        keys = {"model": model, "dataset": dataset, "system": FREE}
        yield Cell(keys, LATENCY, Measure(reason=_shared.NO_FREE))


def _systems(runs: Runs, dataset: str, model: str) -> tuple[Variant | None, Variant | None]:
    """CFIC and free generation: those that were timed, else those with records."""
    latency = timing.find(runs, dataset, model)
    answered = {v.name: v for v in runs.of(dataset, model)}
    names = sorted(v.name for v in _shared.timed_variants(runs, latency)) if latency else []
    timed = [answered.get(name) or runs.named(model, name) for name in names]
    cfic = _shared.as_published(timed) or _shared.as_published(answered.values())
    return cfic, next(
        (v for v in [*timed, *answered.values()] if v.method == "free_extraction"), None
    )


def _system(runs: Runs, dataset: str, system: str, variant: Variant) -> list[Cell]:
    cut = [record.truncated for record in variant.answered.values()]
    inputs = [
        float(_shared.document_tokens(record, searched=True))
        for record in variant.answered.values()
    ]
    note = f"{sum(map(bool, cut))} of {len(cut)} documents lost their middle" if any(cut) else ""
    measures = {
        "input_tokens": mean(inputs, runs.seed, note),
        "output_tokens": evidence_quality(runs, variant, "evidence_tokens"),
        LATENCY: _shared.finding(runs, dataset, variant),
    }
    if system == "cfic":
        # tokens that prefix decoding takes one after another; the first needs no pass of its own
        steps = [
            1.0 + sum(call.stage == "prefix" for call in trace) for trace in variant.traces.values()
        ]
        measures = _shared.with_size(variant, measures) | {"prefix_steps": mean(steps, runs.seed)}
    keys = _keys(dataset, variant, system)
    return row_cells(keys, measures)


def _keys(dataset: str, variant: Variant, system: str) -> dict[str, Any]:
    return {"model": variant.model, "dataset": dataset, "system": system, "variant": variant.name}


def _panel(ax: Axes, part: Table, model: str, dataset: str) -> None:
    column = "published" if part["measured"].isna().all() else "measured"
    values = dict(zip(part["system"], part[column], strict=True))
    rows = [system for system in NAMES if system in values]
    for place, system in enumerate(rows):
        widths = {"free": values[system]}
        start = 0.0
        if system == "cfic":  # its stages one after another; what no stage accounts for last
            widths = {stage: values.get(f"cfic_{stage}_stage", 0.0) for stage in _shared.STAGES}
            widths["rest"] = max(0.0, values[system] - sum(widths.values()))
        for stage, width in widths.items():
            ax.barh(place, width, left=start, height=0.6, color=STAGES[stage])
            start += width
    style.name_rows(ax, [NAMES[system] for system in rows])
    ax.set_xlabel("ms to the evidence")
    title = "published, 7B" if column == "published" else model
    ax.set_title(
        f"{title}\n{dataset.removeprefix(LONGBENCH)}", loc="left", color=style.MUTED, pad=3
    )
    if column == "published":
        ax.set_facecolor(style.PUBLISHED_FACE)
