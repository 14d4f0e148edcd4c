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

from collections.abc import Mapping
from statistics import fmean

from ragauge.config.reads import Reads, others
from ragauge.report.figures import Axis, Dots, Figure, style
from ragauge.report.items.cfic import _shared
from ragauge.results import materials
from ragauge.results.cells import (
    Cells,
    Keys,
    Line,
    Measure,
    Measures,
    Table,
    frame,
    mean,
    row_cells,
)
from ragauge.results.measures import evidence_quality
from ragauge.results.publications import printed
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.stats import SHARE

KEYS = ("model", "dataset", "system", "variant")
FAITHFULNESS = "faithfulness"
FAITHFUL = {"yes": FAITHFULNESS}
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
    columns = [f"{quantity}_pct" for quantity in (FAITHFULNESS, *LABELS)]
    cells += printed(
        "cfic_table_7",
        lambda line: {
            "model": JUDGES[line["judge"]],
            "dataset": SAMPLE,
            "system": SYSTEMS[line["system"]],
        },
        columns,
        "published; judged, not compared",
    )
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
    return Dots(axes, look=lambda line: line["system"].partition(",")[0], name=_name)(table)


def _name(line: Line) -> str:
    method, _, chunking = line["system"].partition(", ")
    return style.method_label(method) + (f", {chunking.replace('_window', '')}" if chunking else "")


def _group(group: Group) -> Cells:
    """CFIC as the paper has it first, before its ablations and sweeps."""
    best = _shared.as_published(group.variants)
    for variant in sorted(group.variants, key=lambda v: v is not best):
        if _shared.with_evidence(variant):
            system = ", ".join(filter(None, _shared.row(variant)))
            keys = group.keys | {"system": system, "variant": variant.name}
            found = {
                FAITHFULNESS: evidence_quality(variant, "evidence_verbatim"),
                "answer_in_evidence": evidence_quality(variant, "answer_in_evidence"),
            }
            yield from row_cells(keys, found | _by_model(variant) | _by_people(variant))


def _by_model(variant: Variant) -> Measures:
    """The share of each judgement of support, and of those that call evidence faithful where
    faithfulness was judged.
    """
    shares = _shares(variant.runs, materials.judgements(variant), LABELS)
    faithful = materials.judgements(variant, FAITHFULNESS)
    if faithful:
        judged = _shares(variant.runs, faithful, ("faithful", "unfaithful"))
        shares["judged_faithfulness"] = judged["faithful"]
    return shares


def _shares(runs: Runs, judged: Mapping[str, Keys], known: tuple[str, ...]) -> Measures:
    """The share of each label, over the questions that the judge gave one of them."""
    labels = [label for line in judged.values() if (label := line.get("label")) in known]
    if not labels:
        reason = "no judgement could be read from the judge's replies" if judged else NO_JUDGE
        return dict.fromkeys(known, Measure(reason=reason))
    note = f"judged by {', '.join(sorted({str(line.get('judge')) for line in judged.values()}))}"
    if failed := len(judged) - len(labels):
        note += f"; {failed} questions without a judgement"
    return {
        label: mean([given == label for given in labels], runs.seed, note, limits=SHARE)
        for label in known
    }


def _by_people(variant: Variant) -> Measures:
    """The same by people, and how often those who judge the same evidence give it one label;
    nothing without any.
    """
    judged = list(materials.human_judgements(variant).values())
    people = {one.person for several in judged for one in several}
    note = f"judged by {len(people)} people"
    if common := [{one.label for one in several} for several in judged if len(several) > 1]:
        agreed = sum(len(labels) == 1 for labels in common)
        note += f", with one label for {agreed} of {len(common)} questions that several judged"
    measures = {}
    for quantity in (FAITHFULNESS, *LABELS) if judged else ():
        shares = [
            fmean(quantity in (one.label, FAITHFUL.get(one.faithful)) for one in several)
            for several in judged
        ]
        measures[f"human_{quantity}"] = mean(shares, variant.runs.seed, note, limits=SHARE)
    return measures
