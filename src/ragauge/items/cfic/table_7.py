"""CFIC, Table 7: whether evidence stands in its document, and whether it supports the answer.

Shows, for every method that answers from evidence, `faithfulness`: the share of its pieces of evidence that are a
substring of the document, character by character, over every record; `answer_in_evidence`, the share of questions whose
evidence says a reference answer; and the shares of questions whose evidence a language model judged to support the
answer, to support it partly or not at all. The judge is named in the note; without judgements the cells say so.

Does not show: agreement between judges. The paper's faithfulness is itself judged, by ChatGPT and by people, on 50
questions; below 100 for evidence that was cut out of the document is then the judge's, not the method's.
"""

from __future__ import annotations

from ragauge.experiment.reads import Reads, others
from ragauge.items.cfic import _shared
from ragauge.rendering import Axis, Figure, dots, style
from ragauge.results import Cell, Measure, Runs, Table, Variant, evidence_quality, frame, materials, mean, read_csv

KEYS = ("model", "dataset", "system", "variant")
FAITHFULNESS = "faithfulness"
LABELS = ("supported", "partially_supported", "not_supported")
JUDGES = {"chatgpt": "the paper, judged by ChatGPT", "human": "the paper, judged by people"}
SYSTEMS = {"bge_sliding_window": "bge, sliding_window", "longalpaca_7b": "free_extraction", "cfic": "cfic"}
SAMPLE = "longbench, the paper's sample"
NO_JUDGE = "not judged: no judgements of this variant; `ragauge judge` makes them with an LLM judge"

READS = Reads(answers=(others("full_article", "naive"),), datasets="long", judgements=True)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, quantity); shares, where the paper prints per cent."""
    measured = [
        cell for group in runs.groups(READS.datasets) for v in _ordered(runs, *group) for cell in _cells(runs, v)
    ]
    return frame(KEYS, measured + _published())


def draw(table: Table) -> Figure:
    """Faithfulness and support, a line a method."""
    axes = {
        FAITHFULNESS: Axis("evidence in the document"),
        "answer_in_evidence": Axis("says the answer"),
    }
    table = table[table["variant"].isin(_first(table)) | (table["variant"] == "")]
    axes |= {"supported": Axis("judged to support it")} if _judged(table) else {}
    systems = table["system"]
    return dots.draw(table, [s.partition(",")[0] for s in systems], axes, [_name(s) for s in systems])


def _first(table: Table) -> set[str]:
    """The variant that stands for each system; the table has all of them."""
    return set(table.drop_duplicates(["model", "dataset", "system"])["variant"])


def _judged(table: Table) -> bool:
    """Whether there is a judgement to draw, a published one counted."""
    part = table[table["quantity"] == "supported"]
    return bool(part["measured"].notna().any() or part["published"].notna().any())


def _name(system: str) -> str:
    method, _, chunking = system.partition(", ")
    label = style.method_label(method)
    return f"{label}, {chunking.replace('_window', '')}" if chunking else label


def _ordered(runs: Runs, dataset: str, model: str) -> list[Variant]:
    """The variants with CFIC as the paper has it first, before its ablations and sweeps."""
    best = _shared.main(runs, dataset, model)
    return sorted(runs.of(dataset, model), key=lambda v: v is not best)


def _cells(runs: Runs, variant: Variant) -> list[Cell]:
    if not _shared.with_evidence(variant):
        return []
    system = ", ".join(filter(None, _shared.row(variant)))
    keys = {"model": variant.model, "dataset": variant.dataset, "system": system, "variant": variant.name}
    measures = {
        FAITHFULNESS: evidence_quality(runs, variant, "evidence_verbatim"),
        "answer_in_evidence": evidence_quality(runs, variant, "answer_in_evidence"),
        **_support(runs, variant),
    }
    return [Cell(keys, quantity, measure) for quantity, measure in measures.items()]


def _support(runs: Runs, variant: Variant) -> dict[str, Measure]:
    """The share of each judgement, over the questions that the judge gave one of them."""
    judged = materials.judgements(runs, variant)
    found = {key: line["label"] for key, line in judged.items() if line.get("label") in LABELS}
    if not found:
        reason = "no judgement could be read from the judge's replies" if judged else NO_JUDGE
        return {label: Measure(reason=reason) for label in LABELS}
    judges = ", ".join(sorted({str(line.get("judge")) for line in judged.values()}))
    failed = f"; {len(judged) - len(found)} questions without a judgement" if len(found) < len(judged) else ""
    values = {label: [float(given == label) for given in found.values()] for label in LABELS}
    return {label: mean(of, runs.seed, f"judged by {judges}{failed}") for label, of in values.items()}


def _published() -> list[Cell]:
    return [
        Cell(
            {"model": JUDGES[line["judge"]], "dataset": SAMPLE, "system": SYSTEMS[line["system"]]},
            quantity,
            Measure(note="published; judged, not compared"),
            float(line[f"{quantity}_pct"]) / 100,
        )
        for line in read_csv("cfic_table_7")
        for quantity in (FAITHFULNESS, *LABELS)
    ]
