"""Shared parts of CFIC's items: which variant is which row of the paper's tables, its evidence and
times, published F1.

Times are seconds until evidence is found, from the latency rule's files alone: medians of one
machine.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ragauge.io.records import Record
from ragauge.report.figures import Point, lines
from ragauge.results.cells import (
    Cell,
    Cells,
    Keys,
    Measure,
    Measures,
    Table,
    join,
    noted,
    row_cells,
)
from ragauge.results.measures import difference, evidence_quality, quality, scored
from ragauge.results.publications import GENERATORS, LONGBENCH, Printed, read_csv
from ragauge.results.runs import Group, Runs, Variant, defaults, identities, model_name
from ragauge.results.times import LatencyTimes
from ragauge.results.timing import TIMED, described, quartiles, ratio

SECTION = "gold_section_recall"
NO_FREE = "not run: no variant of method free_extraction in this experiment"
STAGES = ("query", "prefix", "skip")  # of CFIC, before the answer is generated
ANSWER = "prompt"  # the stage that reads the evidence and the question for the answer
# The names that the paper's generators are known by here.
ENCODERS = {
    "bge-large": "bge",
    "llm-embedder": "llm_embedder",
    "llm_embedder": "llm_embedder",
    "minilm": "minilm",
}


class MethodRow(NamedTuple):
    """A method as Table 3 tells it apart."""

    # who finds the evidence: a ranker, "free_extraction", "cfic", or a way to do without any
    method: str
    chunking: str = ""


def row(variant: Variant) -> MethodRow:
    """The row of a variant, from its method and parameters; rankers and encoders as the paper calls
    them.
    """
    if variant.method != "chunks":
        return MethodRow("full_article" if variant.method == "naive" else variant.method)
    ranker = str(variant.param("ranker"))
    if ranker == "dense":
        encoder = model_name(str(variant.param("encoder"))).lower()
        ranker = next((short for part, short in ENCODERS.items() if part in encoder), encoder)
    return MethodRow(ranker, str(variant.param("chunking")))


def document_tokens(record: Record, searched: bool = False) -> int:
    """Tokens of a question's documents, or of what was searched of them."""
    left_out = record.tokens.get("truncated")  # by the prompt, the record's own by the search
    apart = 0 if left_out is None else left_out - record.truncated * searched
    return sum(record.tokens.get("documents") or []) + int(apart)


def is_cfic(variant: Variant, **others: Any) -> bool:
    """Whether this is CFIC with every option but k and d at its default, or as given in `others`."""
    return variant.is_default("cfic", ("top_k", "d"), **others)


def size(variant: Variant) -> tuple[Any, Any]:  # (k, d)
    return variant.param("top_k"), variant.param("d")


def as_published(variants: Iterable[Variant]) -> Variant | None:
    """Return CFIC as the paper has it (k=3, d=256), else the first variant that has all of its
    options on.
    """
    return max(filter(is_cfic, variants), key=lambda v: v.is_default("cfic"), default=None)


def without_prefix(table: Table) -> Table:
    """The table with LongBench's own names of its data sets."""
    return table.assign(dataset=table["dataset"].str.removeprefix(LONGBENCH))


def swept(group: Group, varied: str, fixed: str) -> list[Variant]:
    """CFIC's variants over one of its sizes, with the other as published, or of the first."""
    best = as_published(group.variants)
    if best is None:
        return []
    same = [v for v in group.variants if is_cfic(v) and v.param(fixed) == best.param(fixed)]
    return sorted(same, key=lambda v: v.param(varied))


def swept_panels(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The panels with points at several sizes."""
    panels = lines.by_panel(points).items()
    return {title: part for title, part in panels if len({p.x for p in part}) > 1}


def base_of(group: Group) -> str | None:
    """The label of what this, or its finder, was before fine-tuning, or the source; None where it
    was not fine- tuned.
    """
    config = group.runs.config
    entry = group.model_entry
    if entry is None or not config.trainings(group.model):
        return None
    finds = config.training[config.trainings(group.model)[-1]].model
    answers = config.training[entry.training].model if entry.training else entry.source
    for label, m in config.models.items():
        finder = config.models[m.finder] if m.finder else m
        if (m.source, finder.source) == (answers, finds):
            return label
    return answers


def cells(variant: Variant, keys: Keys, measures: Measures) -> Cells:
    """The cells of a variant's row, of the paper's row if it answered that data set's questions
    with that model.
    """
    generator = next((GENERATORS[name] for name in identities(variant) if name in GENERATORS), None)
    dataset = variant.runs.registered(variant.dataset)
    paper = (generator, dataset) if generator and dataset.startswith(LONGBENCH) else (None, None)
    return row_cells({**keys, "variant": variant.name}, measures, *paper)


def not_run(group: Group, is_alike: Callable[[Variant], bool], default: str) -> Measure:
    """Why a row of such variants has no number there; `default` where there is no such variant."""
    alike = [v for v in group.runs.variants if v.model == group.model and is_alike(v)]
    for variant in alike:
        if variant.group == group and variant.missing:
            return Measure(reason=f"not run: {variant.missing} for variant {variant.name}")
    if alike:
        elsewhere = min(v.name for v in alike)
        default = f"not run: variant {elsewhere} is not asked of {group.dataset}"
    return Measure(reason=default)


def runs_every_method(group: Group) -> bool:
    """Whether every method runs on a model, so that a row without records needs a reason."""
    entry = group.model_entry
    return entry is None or (
        entry.methods is None and entry.training is None and entry.finder is None
    )


def published_f1(item: str, keys: Callable[[Printed], Keys]) -> list[Cell]:
    """The F1 of a published table as shares; `keys` are those of a line but model and data set."""
    cells = []
    for line in read_csv(item):
        paper = model, dataset = line["generator"], LONGBENCH + line["dataset"]
        row = {"model": model, "dataset": dataset, **keys(line)}
        cells.append(Cell(row, "f1", Measure(), round(float(line["f1"]) / 100, 4), *paper))
    return cells


def qualities(variant: Variant) -> Measures:
    """F1, and of the evidence its volume in tokens and, where the data set names gold sections,
    their recall.
    """
    measures = {"f1": quality(variant, "f1")}
    if with_evidence(variant):
        measures |= {"evidence_tokens": evidence_quality(variant, "evidence_tokens")}
        measures |= {SECTION: quality(variant, SECTION)} if scored(variant, SECTION) else {}
    return measures


def differences(better: Variant, worse: Variant, word: str) -> Measures:
    """`f1_<word>` and, where both have it, `gold_section_<word>`: better minus worse, question by
    question.
    """
    measures = {f"f1_{word}": difference(better, worse, "f1")}
    if all(scored(v, SECTION) for v in (better, worse)):
        measures[f"gold_section_{word}"] = difference(better, worse, SECTION)
    return measures


def with_evidence(variant: Variant) -> bool:
    """Whether a variant looks for evidence and answers from it in place of whole documents."""
    return row(variant).method != "full_article" and any(
        record.evidence for record in variant.records.values()
    )


def at(variant: Variant) -> str:
    """k and d of a variant in words, where they are not the paper's."""
    paper = tuple(defaults("cfic")[name] for name in ("top_k", "d"))
    return "" if size(variant) == paper else "k={}, d={}".format(*size(variant))


def with_size(variant: Variant, measures: Measures) -> Measures:
    """The measures of a variant of CFIC, with a note where k or d are not the paper's."""
    return {q: noted(m, at(variant)) for q, m in measures.items()}


def timed_groups(runs: Runs) -> list[Group]:
    """The (data set, model) pairs of long documents with records or with times of CFIC; fine-tuned
    models are as fast as their base and are left out.
    """
    answered = [group for group in runs.groups("long") if base_of(group) is None]
    timed = [
        Group(runs, latency.dataset, latency.model)
        for latency in runs.latencies
        if any(v.method == "cfic" for v in timed_variants(runs, latency))
    ]
    return list(dict.fromkeys(answered + timed))


def timed_variants(runs: Runs, latency: LatencyTimes) -> list[Variant]:
    return [runs.named(latency.model, name) for name in latency.variants]


def clock(group: Group) -> LatencyTimes | Measure:
    """The latency file of a group; or why it has no times."""
    latency = group.timed
    if latency is None:
        return Measure(reason=f"not timed: no file of the latency rule for {group.dataset}")
    return Measure(reason=f"timing refused: {latency.refused}") if latency.refused else latency


def finding(group: Group, variant: Variant, stage: str | None = None) -> Measure:
    """Median milliseconds from the question to the first token of the answer, less the reading of
    its prompt; or of a stage.
    """
    latency = clock(group)
    if isinstance(latency, Measure):
        return latency
    if variant.name not in latency.variants:
        missing = f"{variant.name} is not in the latency protocol of {group.dataset}"
        return Measure(reason=f"not timed: {missing}")
    values = _milliseconds(latency, variant, stage)
    nothing = "no undisturbed trial with the seconds of its stages"
    return quartiles(values, described(latency), nothing=nothing)


def finding_in_batch(group: Group, variant: Variant) -> Measure:
    """Milliseconds of one of several questions whose evidence is found side by side; of one alone
    where none were.
    """
    latency = clock(group)
    if isinstance(latency, Measure) or latency.evidence_batches is None:
        return finding(group, variant)
    batch = f"{latency.evidence_batches.questions} questions side by side"
    if variant.name not in {row.variant for row in latency.evidence_batches.rows}:
        return Measure(reason=f"not timed with {batch}")
    values = [1000 * trial.evidence_s for trial in latency.evidence_trials(variant.name)]
    note = join(described(latency), f"{batch}, each with its part of the time")
    return quartiles(values, note, nothing=f"no undisturbed trial with {batch}")


def speedup(group: Group, slow: Variant, fast: Variant) -> tuple[str, Measure]:
    """(`measured_speedup_<device>`, slow over fast until the evidence is known), in the same
    interleaved trials.
    """
    quantity = f"{TIMED}_{group.timed.device if group.timed else 'cpu'}"
    latency = clock(group)
    if isinstance(latency, Measure):
        return quantity, latency
    a = _milliseconds(latency, slow)
    b = _milliseconds(latency, fast)
    if not a or not b:
        return quantity, Measure(reason=f"{(fast if a else slow).name} was not timed")
    return quantity, ratio(a, b, group.runs.seed, n=min(len(a), len(b)))


def _milliseconds(latency: LatencyTimes, variant: Variant, stage: str | None = None) -> list[float]:
    """Each undisturbed trial's milliseconds until the evidence was known, or of one stage."""
    trials = [trial for trial in latency.trials(variant.name) if trial.stages]
    if stage is not None:
        return [1000 * trial.stages.get(stage, 0.0) for trial in trials]
    return [
        1000 * (trial.first_token_s - trial.stages.get(ANSWER, 0.0))
        for trial in trials
        if trial.first_token_s is not None
    ]
