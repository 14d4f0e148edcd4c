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

from collections.abc import Iterator, Mapping
from typing import Any

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Dots
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
NAMES = {
    "cfic": "CFIC",
    "cfic_query_stage": "reading the question",
    "cfic_prefix_stage": "prefix decoding",
    "cfic_skip_stage": "skip decoding",
    FREE: "without strategies",
    "longalpaca_7b": "LongAlpaca",
}
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


def _name(line: Mapping[Any, Any]) -> str:
    name = NAMES[line["system"]]
    return f"{name} · {line['dataset'].removeprefix(LONGBENCH)}" if line["model"] == PAPER else name


def _look(line: Mapping[Any, Any]) -> str:
    return "cfic" if line["system"].startswith("cfic") else "free_extraction"


draw = Dots({LATENCY: Axis("ms to the evidence", "log")}, look=_look, name=_name)


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
