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

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Dots
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import Cell, Cells, Keys, Line, Measure, Table, frame, mean, row_cells
from ragauge.results.measures import evidence_quality
from ragauge.results.publications import LONGBENCH, read_csv
from ragauge.results.runs import Group, Runs, Variant

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
    cells = [cell for group in _shared.timed_groups(runs) for cell in _group(group)]
    steps = {line["dataset"]: line["value"] for line in read_csv("cfic_statements")}
    note = Measure(note="published; of another model on another machine")
    for line in read_csv("cfic_table_6"):
        keys = {"model": PAPER, "dataset": LONGBENCH + line["dataset"], "system": line["system"]}
        cells += [Cell(keys, q, note, float(line[q])) for q in QUANTITIES if line[q]]
        if line["system"] == "cfic":
            cells.append(Cell(keys, "prefix_steps", note, float(steps[line["dataset"]])))
    return frame(KEYS, cells)


def _name(line: Line) -> str:
    name = NAMES[line["system"]]
    return f"{name} · {line['dataset'].removeprefix(LONGBENCH)}" if line["model"] == PAPER else name


draw = Dots(
    {LATENCY: Axis("ms to the evidence", "log")},
    look=lambda line: "cfic" if line["system"].startswith("cfic") else "free_extraction",
    name=_name,
)


def _group(group: Group) -> Cells:
    cfic, free = _systems(group)
    if cfic:
        yield from _system(group, "cfic", cfic)
        for stage in () if isinstance(_shared.clock(group), Measure) else _shared.STAGES:
            keys = _keys(group, f"cfic_{stage}_stage", cfic)
            yield Cell(keys, LATENCY, _shared.finding(group, cfic, stage))
    if free:
        yield from _system(group, FREE, free)
    if cfic and free:
        yield Cell(_keys(group, "cfic", cfic), *_shared.speedup(group, free, cfic))
    elif cfic:
        yield Cell(group.keys | {"system": FREE}, LATENCY, Measure(reason=_shared.NO_FREE))


def _systems(group: Group) -> tuple[Variant | None, Variant | None]:
    """CFIC and free generation: those that were timed, else those with records."""
    answered = {v.name: v for v in group.variants}
    names = sorted(group.timed.variants) if group.timed else []
    timed = [answered.get(name) or group.runs.named(group.model, name) for name in names]
    cfic = _shared.as_published(timed) or _shared.as_published(group.variants)
    free = (v for v in [*timed, *group.variants] if v.method == "free_extraction")
    return cfic, next(free, None)


def _system(group: Group, system: str, variant: Variant) -> Cells:
    answered = variant.answered.values()
    cut = [record.truncated for record in answered if record.truncated]
    inputs = [_shared.document_tokens(record, searched=True) for record in answered]
    note = f"{len(cut)} of {len(answered)} documents lost their middle" if cut else ""
    seed = group.runs.seed
    measures = {
        "input_tokens": mean(inputs, seed, note),
        "output_tokens": evidence_quality(variant, "evidence_tokens"),
        LATENCY: _shared.finding(group, variant),
    }
    if system == "cfic":
        # tokens that prefix decoding takes one after another; the first needs no pass of its own
        steps = [
            1.0 + sum(call.stage == "prefix" for call in trace) for trace in variant.traces.values()
        ]
        measures = _shared.with_size(variant, measures) | {"prefix_steps": mean(steps, seed)}
    return row_cells(_keys(group, system, variant), measures)


def _keys(group: Group, system: str, variant: Variant) -> Keys:
    return group.keys | {"system": system, "variant": variant.name}
