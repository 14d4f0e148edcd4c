"""Shared parts of CFIC's items: which variant is which row of the paper's tables, its evidence and
times, published F1.

Times are seconds until evidence is found, from the latency rule's files alone: medians of one
machine.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ragauge.io.records import Record
from ragauge.results import timing
from ragauge.results.cells import Cell, Keys, Measure, Measures, join, noted, row_cells
from ragauge.results.measures import difference, evidence_quality, quality, scored
from ragauge.results.publications import GENERATORS, LONGBENCH, read_csv
from ragauge.results.runs import Runs, Variant, defaults, identities
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
        encoder = str(variant.param("encoder")).rpartition("/")[2].rpartition(":")[2].lower()
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
    candidates = [v for v in variants if is_cfic(v)]
    return next(
        (v for v in candidates if v.is_default("cfic")), candidates[0] if candidates else None
    )


def base_of(runs: Runs, model: str) -> str | None:
    """The label of what this, or its finder, was before fine-tuning, or the source; None where it
    was not fine- tuned.
    """
    config = runs.config
    entry = runs.config.models.get(model)
    if entry is None or not config.trainings(model):
        return None
    finds = config.training[config.trainings(model)[-1]].model
    answers = config.training[entry.training].model if entry.training else entry.source
    for label, m in config.models.items():
        if (m.source, config.models[m.finder].source if m.finder else m.source) == (answers, finds):
            return label
    return answers


def cells(runs: Runs, variant: Variant, keys: Keys, measures: Measures) -> list[Cell]:
    """The cells of a variant's row, of the paper's row if it answered that data set's questions
    with that model.
    """
    generator = next((GENERATORS[name] for name in identities(variant) if name in GENERATORS), None)
    dataset = runs.registered(variant.dataset)
    paper = (generator, dataset) if generator and dataset.startswith(LONGBENCH) else (None, None)
    return row_cells({**keys, "variant": variant.name}, measures, *paper)


def not_run(variants: Iterable[Variant], dataset: str, model: str, default: str) -> Measure:
    """Why a row of these variants has no number there; `default` where there is no such variant."""
    alike = [v for v in variants if v.model == model]
    missing = [v for v in alike if v.dataset == dataset and v.missing]
    if missing:
        return Measure(reason=f"not run: {missing[0].missing} for variant {missing[0].name}")
    elsewhere = min((v.name for v in alike), default="")
    return Measure(
        reason=f"not run: variant {elsewhere} is not asked of {dataset}" if alike else default
    )


def runs_every_method(runs: Runs, model: str) -> bool:
    """Whether every method runs on a model, so that a row without records needs a reason."""
    entry = runs.config.models.get(model)
    return entry is None or (
        entry.methods is None and entry.training is None and entry.finder is None
    )


def published_f1(item: str, keys: Mapping[str, str]) -> list[Cell]:
    """The F1 of a published table as shares; `keys` maps our key columns to the CSV's."""
    cells = []
    for line in read_csv(item):
        paper = model, dataset = line["generator"], LONGBENCH + line["dataset"]
        row = {
            "model": model,
            "dataset": dataset,
            **{key: line[column] for key, column in keys.items()},
        }
        cells.append(Cell(row, "f1", Measure(), round(float(line["f1"]) / 100, 4), *paper))
    return cells


def qualities(runs: Runs, variant: Variant) -> Measures:
    """F1, and of the evidence its volume in tokens and, where the data set names gold sections,
    their recall.
    """
    measures = {"f1": quality(runs, variant, "f1")}
    if with_evidence(variant):
        measures |= {"evidence_tokens": evidence_quality(runs, variant, "evidence_tokens")}
        measures |= (
            {SECTION: quality(runs, variant, SECTION)} if scored(runs, variant, SECTION) else {}
        )
    return measures


def differences(runs: Runs, better: Variant, worse: Variant, word: str) -> Measures:
    """`f1_<word>` and, where both have it, `gold_section_<word>`: better minus worse, question by
    question.
    """
    measures = {f"f1_{word}": difference(runs, better, worse, "f1")}
    if all(scored(runs, v, SECTION) for v in (better, worse)):
        measures[f"gold_section_{word}"] = difference(runs, better, worse, SECTION)
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


def timed_groups(runs: Runs) -> list[tuple[str, str]]:
    """The (data set, model) pairs of long documents with records or with times of CFIC; fine-tuned
    models are as fast as their base and are left out.
    """
    answered = [(d, m) for d, m in runs.groups("long") if base_of(runs, m) is None]
    timed = [
        (latency.dataset, latency.model)
        for latency in runs.latencies
        if any(v.method == "cfic" for v in timed_variants(runs, latency))
    ]
    return list(dict.fromkeys(answered + timed))


def timed_variants(runs: Runs, latency: LatencyTimes) -> list[Variant]:
    return [runs.named(latency.model, name) for name in latency.variants]


def why_not(runs: Runs, dataset: str, model: str) -> str:
    latency = timing.find(runs, dataset, model)
    if latency is None:
        return f"not timed: no file of the latency rule for {dataset}"
    return f"timing refused: {latency.refused}" if latency.refused else ""


def finding(runs: Runs, dataset: str, variant: Variant, stage: str | None = None) -> Measure:
    """Median milliseconds from the question to the first token of the answer, less the reading of
    its prompt; or of a stage.
    """
    latency = timing.find(runs, dataset, variant.model)
    reason = why_not(runs, dataset, variant.model)
    if latency is None or reason:
        return Measure(reason=reason)
    if variant.name not in {v.name for v in timed_variants(runs, latency)}:
        return Measure(
            reason=f"not timed: {variant.name} is not in the latency protocol of {dataset}"
        )
    values = _milliseconds(latency, variant, stage)
    nothing = "no undisturbed trial with the seconds of its stages"
    return quartiles(values, described(latency), nothing=nothing)


def finding_in_batch(runs: Runs, dataset: str, variant: Variant) -> Measure:
    """Milliseconds of one of several questions whose evidence is found side by side; of one alone
    where none were.
    """
    latency = timing.find(runs, dataset, variant.model)
    if latency is None or latency.refused or latency.evidence_batches is None:
        return finding(runs, dataset, variant)
    values = [1000 * trial.evidence_s for trial in latency.evidence_trials(variant.name)]
    batch = f"{latency.evidence_batches.questions} questions side by side"
    note = join(described(latency), f"{batch}, each with its part of the time")
    return quartiles(values, note, nothing=f"not timed with {batch}")


def speedup(runs: Runs, dataset: str, slow: Variant, fast: Variant) -> tuple[str, Measure]:
    """(`measured_speedup_<device>`, slow over fast until the evidence is known), in the same
    interleaved trials.
    """
    latency = timing.find(runs, dataset, fast.model)
    reason = why_not(runs, dataset, fast.model)
    quantity = f"{TIMED}_{latency.device if latency else 'cpu'}"
    if latency is None or reason:
        return quantity, Measure(reason=reason)
    a = _milliseconds(latency, slow)
    b = _milliseconds(latency, fast)
    if not a or not b:
        return quantity, Measure(reason=f"{(slow if not a else fast).name} was not timed")
    return quantity, ratio(a, b, runs.seed, n=min(len(a), len(b)))


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
