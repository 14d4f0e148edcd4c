"""CFIC, Table 4: the ablation, without prefixes, without skip decoding, without both, without fine-tuning.

What this shows: F1 (a share; the paper prints per cent) of each setting at one k and d, the tokens
of evidence, the recall of the gold section where the data set names one, and CFIC's F1 and recall
minus the setting's on the same questions, with a paired test (`..._loss`); also the search of the
released code, which follows the likeliest first tokens greedily, its sentences, by NLTK's Punkt,
and the full article.

The paper's row without SFT has two readings. Section 4.5 describes CFIC's decoding with the model
before fine-tuning (`without_sft`); the numbers printed there are those of LongAlpaca's free
extraction in Table 3 (`without_sft_free`) and are compared with that. A model that was not
fine-tuned has both from its own two rows.

Limits: Table 6 has the times, Table 8 and Figure 3 other k and d.
"""

from dataclasses import replace

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import Axis, Dots
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import (
    Cell,
    Cells,
    Keys,
    Measure,
    Measures,
    Table,
    frame,
    join,
    merge,
    noted,
)
from ragauge.results.publications import Printed
from ragauge.results.runs import Group, Runs, Variant

KEYS = ("model", "dataset", "setting", "variant")
# setting -> CFIC's options that it changes
OPTIONS: dict[str, JsonObject] = {
    "cfic": {},
    "without_prefix": {"prefix": False},
    "without_skip": {"skip": False},
    "without_both": {"prefix": False, "skip": False},
    "first_token": {"search": "first_token"},
    "punkt": {"sentences": "punkt"},
}
# CFIC's decoding; free extraction, which the paper's numbers are of
WITHOUT_SFT = ("without_sft", "without_sft_free")
SETTINGS = (
    "cfic",
    "without_prefix",
    "without_skip",
    "without_both",
    *WITHOUT_SFT,
    "first_token",  # of the released code, and its sentences
    "punkt",
    "full_article",
)
NOT_RUN = "not run: not in this experiment"
UNTRAINED = "this model was not fine-tuned for CFIC: what the paper calls without SFT"
PRINTED = "the numbers printed for this row are those of free extraction in Table 3"

VARIED = defaults("cfic", top_k=ANY, d=ANY, prefix=ANY, skip=ANY, search=ANY, sentences=ANY)
READS = Reads((every("full_article", "naive", "free_extraction"), VARIED), datasets="long")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    printed = _shared.published_f1("cfic_table_4", _published_keys)
    return frame(KEYS, merge(measured, printed, on=("setting",)))


def _published_keys(line: Printed) -> Keys:
    setting = line["variant"]
    return {"setting": "without_sft_free" if setting == "without_sft" else setting}


draw = Dots({"f1": Axis("F1")}, look=lambda line: line["setting"], by_dataset=True)


def _group(group: Group) -> Cells:
    full = _shared.as_published(group.variants)
    if not full and not any(v.method == "cfic" for v in group.variants):
        return
    variants = _found(group, full)
    for setting in SETTINGS:
        keys = group.keys | {"setting": setting}
        if variant := variants.get(setting):
            yield from _shared.cells(variant, keys, _measures(group, setting, variant, full))
        elif _shared.runs_every_method(group):
            yield Cell(keys, "f1", _reason(group, setting))


def _found(group: Group, full: Variant | None) -> dict[str, Variant]:
    """The variant of each setting, all at the k and d of CFIC itself."""
    here = group.variants
    before = replace(group, model=_shared.base_of(group) or group.model).variants
    size = _shared.size(full) if full else None
    alike = [v for v in here if v.method == "cfic" and size in (None, _shared.size(v))]
    found = {
        setting: [v for v in alike if _shared.is_cfic(v, **options)]
        for setting, options in OPTIONS.items()
    }
    found |= {
        "without_sft": [v for v in before if _shared.is_cfic(v) and _shared.size(v) == size],
        "without_sft_free": [v for v in before if v.method == "free_extraction"],
        "full_article": [v for v in here if _shared.row(v).method == "full_article"],
    }
    return {setting: variants[0] for setting, variants in found.items() if variants}


def _measures(group: Group, setting: str, variant: Variant, full: Variant | None) -> Measures:
    measures = _shared.qualities(variant)
    if full and variant is not full:
        measures |= _shared.differences(full, variant, "loss")
    note = UNTRAINED if _shared.base_of(group) is None and setting in ("cfic", *WITHOUT_SFT) else ""
    note = join(note, PRINTED if setting == "without_sft" else "")
    size = _shared.at(variant) if variant.method == "cfic" else ""
    return {q: noted(m, note, size) if q == "f1" else m for q, m in measures.items()}


def _reason(group: Group, setting: str) -> Measure:
    if setting in WITHOUT_SFT:
        return Measure(reason=NOT_RUN)
    if setting == "full_article":
        return _shared.not_run(group, lambda v: _shared.row(v).method == setting, NOT_RUN)
    options = OPTIONS[setting]
    changed = ", ".join(f"{k}: {str(v).lower()}" for k, v in options.items())
    default = f"{NOT_RUN}; it is method cfic with {changed}"
    return _shared.not_run(group, lambda v: _shared.is_cfic(v, **options), default)
