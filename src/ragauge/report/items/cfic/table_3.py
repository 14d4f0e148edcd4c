"""CFIC, Table 3: evidence without chunking compared with chunk-and-rank, free extraction and the full article.

What this shows: F1 (a share; the paper prints per cent) of every method on every data set of long
documents, the tokens of evidence, the recall of the gold section where the data set names one, and
CFIC's F1 and recall minus the method's on the same questions, with a paired test (`..._cfic_gain`).
Two chat models answer in the paper; `finder` names the model that found the evidence.

Limits: Table 6 has the times. The paper's F1 rests on 150 to 200 questions a data set; a smaller
count says so below.
"""

from functools import partial

from ragauge.config.reads import ANY, Reads, defaults, others
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import Axis, Dots, style
from ragauge.report.items.cfic import _shared
from ragauge.report.items.cfic._shared import MethodRow
from ragauge.results.cells import Cell, Cells, Keys, Line, Table, frame, merge
from ragauge.results.publications import Printed
from ragauge.results.runs import Group, Runs, Variant, known_names

KEYS = ("model", "dataset", "method", "chunking", "finder", "variant")
ON = ("method", "chunking", "finder")
CHUNKINGS = ("sliding_window", "paragraph")
RANKERS = ("bge", "llm_embedder", "minilm", "bm25")  # the last two are not in the paper
ROWS = (
    *(MethodRow(ranker, chunking) for ranker in RANKERS for chunking in CHUNKINGS),
    MethodRow("free_extraction"),
    MethodRow("cfic"),
    MethodRow("full_article"),
)
OURS = ("minilm", "bm25")
OWN_FINDER = "cfic_7b"  # of the paper's CFIC
HUB = "not run: not in this experiment; its encoder comes from a model hub, configs/papers/paper.yaml has it"
# The paper's extractors, by what the names of their checkpoints begin with.
EXTRACTORS = {
    "vicuna-7b": "vicuna_7b",
    "longchat-7b": "longchat_7b",
    "longalpaca-7b": "longalpaca_7b",
}
# of CFIC-7B: by section 4.3, and of the ablation
FOUNDATIONS = ("llama-2-7b-chat", "longalpaca-7b")
SHORT = {"sliding_window": "windows", "paragraph": "paragraphs"}

READS = Reads(answers=(others("cfic"), defaults("cfic", top_k=ANY, d=ANY)), datasets="long")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    printed = _shared.published_f1("cfic_table_3", _published_keys)
    return frame(KEYS, merge(measured, printed, on=ON))


def _name(line: Line) -> str:
    label = style.method_label(line["method"])
    finder = line["finder"]
    if line["chunking"]:
        return f"{label}, {SHORT[line['chunking']]}"
    by_another = finder not in ("", line["model"], OWN_FINDER)
    return label + (f" (found by {finder.removesuffix('_7b')})" if by_another else "")


draw = Dots({"f1": Axis("F1")}, name=_name, by_dataset=True)


def _group(group: Group) -> Cells:
    best = _shared.as_published(group.variants)
    by_row: dict[MethodRow, list[Variant]] = {row: [] for row in ROWS}
    for variant in group.variants:
        if variant.method != "cfic" or variant is best:
            by_row.setdefault(_shared.row(variant), []).append(variant)
    for row, variants in by_row.items():
        for variant in variants:
            yield from _measured(row, variant, best)
        if not variants and row.method not in OURS and _shared.runs_every_method(group):
            default = HUB if row.chunking else "not run: not in this experiment"
            missing = _shared.not_run(group, partial(_is_of, row), default)
            yield Cell(_keys(group, row), "f1", missing)


def _is_of(row: MethodRow, variant: Variant) -> bool:
    return _shared.row(variant) == row


def _measured(row: MethodRow, variant: Variant, best: Variant | None) -> Cells:
    measures = _shared.qualities(variant)
    if best is variant:
        measures = _shared.with_size(variant, measures)
    elif best:
        measures |= _shared.differences(best, variant, "cfic_gain")
    keys = _keys(variant.group, row)
    finder = _finder(variant) if row.method in ("cfic", "free_extraction") else None
    return _shared.cells(variant, keys | ({"finder": finder} if finder else {}), measures)


def _finder(variant: Variant) -> str | None:
    """The paper's name of the model that finds evidence for a variant; its own is fine-tuned from
    its base. None where that model is none of the paper's, or finds in another way than it does
    there.
    """
    config = variant.runs.config
    if variant.method == "cfic":
        trainings = config.trainings(variant.model) if variant.model in config.models else ()
        bases = [config.training[name].model for name in trainings]
        names = [name for base in bases for name in known_names(base)]
        return OWN_FINDER if any(name.startswith(FOUNDATIONS) for name in names) else None
    stated = variant.specification.finder if variant.specification else None
    names = known_names(stated.model if stated else variant.runs.source(variant.model))
    return next(
        (paper for name in names for start, paper in EXTRACTORS.items() if name.startswith(start)),
        None,
    )


def _keys(group: Group, row: MethodRow) -> JsonObject:
    entry = group.model_entry
    finder = (entry.finder if entry else None) or group.model
    return group.keys | {
        "method": row.method,
        "chunking": row.chunking,
        "finder": finder if row.method in ("cfic", "free_extraction") else "",
    }


def _published_keys(line: Printed) -> Keys:
    """The keys of the paper's rows; its extractors and its own model stand as finders."""
    name = line["method"]
    method = name
    if name in EXTRACTORS.values():
        method = "free_extraction"
    elif name == OWN_FINDER:
        method = "cfic"
    finder = "" if method == name else name
    return {"method": method, "chunking": line["chunking"], "finder": finder}
