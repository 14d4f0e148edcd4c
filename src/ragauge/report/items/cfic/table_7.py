"""CFIC, Table 7: whether evidence is verbatim, and whether it supports the answer.

What this shows: for every method that answers from evidence, `faithfulness`, the share of a
question's pieces of evidence that are a substring of the document, averaged over the questions with
any; `answer_in_evidence`, the share of questions whose evidence contains a reference answer; the
shares of questions whose evidence a language model judged to support the answer, partly or not at
all, and to be faithful to the document (`judged_faithfulness`). The note names the judge.
`human_...` are the same by people, from the file that `human_judgements` names: means over
questions, each the mean over its people.

Limits: the paper's faithfulness was judged by ChatGPT and by people on 50 questions; a value below
100 for evidence that was cut out of the document is due to the judge.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ragauge.config.reads import Reads, others
from ragauge.report.figures import Axis, Dots, Figure, style
from ragauge.report.items.cfic import _shared
from ragauge.results import materials
from ragauge.results.cells import Cell, Measure, Measures, Table, frame, mean, row_cells
from ragauge.results.measures import evidence_quality
from ragauge.results.publications import read_csv
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import SHARE

KEYS = ("model", "dataset", "system", "variant")
FAITHFULNESS = "faithfulness"
JUDGED = "judged_faithfulness"
HUMAN = "human_"
LABELS = ("supported", "partially_supported", "not_supported")
JUDGES = {"chatgpt": "the paper, judged by ChatGPT", "human": "the paper, judged by people"}
SYSTEMS = {
    "bge_sliding_window": "bge, sliding_window",
    "longalpaca_7b": "free_extraction",
    "cfic": "cfic",
}
SAMPLE = "longbench, the paper's sample"
NO_JUDGE = "not judged: no judgements of this variant; `ragauge judge` makes them with an LLM judge"

READS = Reads(answers=(others("full_article", "naive"),), datasets="long", judgements=True)


def table(runs: Runs) -> Table:
    cells = runs.by_group(_group, READS.datasets)
    note = Measure(note="published; judged, not compared")
    for line in read_csv("cfic_table_7"):
        keys = {
            "model": JUDGES[line["judge"]],
            "dataset": SAMPLE,
            "system": SYSTEMS[line["system"]],
        }
        cells += [
            Cell(keys, q, note, float(line[f"{q}_pct"]) / 100) for q in (FAITHFULNESS, *LABELS)
        ]
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    """Faithfulness and support, a line a method: the first variant of each."""
    axes = {
        FAITHFULNESS: Axis("evidence in the document"),
        "answer_in_evidence": Axis("says the answer"),
    }
    first = set(table.drop_duplicates(["model", "dataset", "system"])["variant"])
    table = table[table["variant"].isin(first) | (table["variant"] == "")]
    judged = (
        table[table["quantity"] == "supported"][["measured", "published"]].notna().any(axis=None)
    )
    axes |= {"supported": Axis("judged to support it")} if judged else {}
    return Dots(axes, look=lambda line: str(line["system"].partition(",")[0]), name=_name)(table)


def _name(line: Mapping[Any, Any]) -> str:
    method, _, chunking = line["system"].partition(", ")
    return style.method_label(method) + (f", {chunking.replace('_window', '')}" if chunking else "")


def _group(runs: Runs, dataset: str, model: str) -> Iterator[Cell]:
    """CFIC as the paper has it first, before its ablations and sweeps."""
    best = _shared.as_published(runs.of(dataset, model))
    for variant in sorted(runs.of(dataset, model), key=lambda v: v is not best):
        if _shared.with_evidence(variant):
            system = ", ".join(filter(None, _shared.row(variant)))
            keys = {"model": model, "dataset": dataset, "system": system, "variant": variant.name}
            found = {
                FAITHFULNESS: evidence_quality(runs, variant, "evidence_verbatim"),
                "answer_in_evidence": evidence_quality(runs, variant, "answer_in_evidence"),
            }
            judged = _by_model(runs, variant) | _by_people(runs, variant)
            yield from row_cells(keys, found | judged)


def _by_model(runs: Runs, variant: Variant) -> Measures:
    """The share of each judgement of support, and of those that call evidence faithful where
    faithfulness was judged.
    """
    faithful = materials.judgements(runs, variant, FAITHFULNESS)
    more = (
        {JUDGED: _shares(runs, faithful, ("faithful", "unfaithful"))["faithful"]}
        if faithful
        else {}
    )
    return _shares(runs, materials.judgements(runs, variant), LABELS) | more


def _shares(
    runs: Runs, judged: Mapping[str, Mapping[str, Any]], known: tuple[str, ...]
) -> Measures:
    """The share of each label, over the questions that the judge gave one of them."""
    labels = {key: line["label"] for key, line in judged.items() if line.get("label") in known}
    if not labels:
        reason = "no judgement could be read from the judge's replies" if judged else NO_JUDGE
        return {label: Measure(reason=reason) for label in known}
    judges = ", ".join(sorted({str(line.get("judge")) for line in judged.values()}))
    failed = (
        f"; {len(judged) - len(labels)} questions without a judgement"
        if len(labels) < len(judged)
        else ""
    )
    values = {label: [float(given == label) for given in labels.values()] for label in known}
    return {
        label: mean(of, runs.seed, f"judged by {judges}{failed}", limits=SHARE)
        for label, of in values.items()
    }


def _by_people(runs: Runs, variant: Variant) -> Measures:
    """The same by people, and how often those who judge the same evidence give it one label;
    nothing without any.
    """
    if not (judged := list(materials.human_judgements(runs, variant).values())):
        return {}
    people = {judgement.person for several in judged for judgement in several}
    agreed = [
        len({judgement.label for judgement in several}) == 1
        for several in judged
        if len(several) > 1
    ]
    note = f"judged by {len(people)} people"
    note += (
        f", with one label for {sum(agreed)} of {len(agreed)} questions that several judged"
        if agreed
        else ""
    )
    sets = [
        [
            (judgement.label, FAITHFULNESS if judgement.faithful == "yes" else "")
            for judgement in several
        ]
        for several in judged
    ]
    values = {
        q: [sum(q in marks for marks in several) / len(several) for several in sets]
        for q in (FAITHFULNESS, *LABELS)
    }
    return {
        f"{HUMAN}{quantity}": mean(of, runs.seed, note, limits=SHARE)
        for quantity, of in values.items()
    }
