"""The small print of every table and figure: what was measured, on how many questions, in which
precision, where.
"""

from collections.abc import Iterable, Iterator, Sequence

from ragauge.report.figures.style import counted
from ragauge.results.cells import CellSource, Keys, Table
from ragauge.results.pipelines import IndexName, PipelineRun, pipelines
from ragauge.results.provenance import commit, machine, place, provenance_of
from ragauge.results.runs import Runs, Variant
from ragauge.results.sequences import AGAINST_NONE
from ragauge.results.staleness import comparisons
from ragauge.results.systems import systems
from ragauge.results.timing import precision

FEW_COMMITS = 3  # that small print names one by one


def footer(runs: Runs, table: Table) -> str:
    """One line on the answers, times or pipelines behind the measured numbers of a table."""
    measured = table[table["measured"].notna()]
    answered = [v for v in runs.run if _in(measured, v)]
    parts = [*_describe_answers(runs, answered), _timed(runs, measured)]
    if not any(parts):
        parts = [*_describe_comparisons(runs, measured), *_describe_pipelines(runs, measured)]
    if parts:
        return sentence(*parts)
    if table.empty:
        return "Nothing measured yet."
    return "Nothing measured here: published and predicted numbers only."


def sentence(*parts: str) -> str:
    """The parts of a small print, empty ones left out."""
    return "; ".join(filter(None, parts)) + "."


def distinct(texts: Iterable[str | None]) -> list[str]:
    """The texts, empty ones and repetitions left out."""
    return list(dict.fromkeys(filter(None, texts)))


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(distinct(texts))


def _place(blocks: Sequence[tuple[Keys, str | None]]) -> list[str]:
    """Where numbers were measured and with which torch and code, from their provenance blocks, each
    with its device.
    """
    names = _listed(machine(block, device) for block, device in blocks)
    torches = distinct((block.get("packages") or {}).get("torch") for block, _ in blocks)
    commits = distinct(commit(block) for block, _ in blocks)
    if len(commits) > FEW_COMMITS:
        commits = [f"{len(commits)} states of the code, named in provenance.json"]
    versions = ", ".join([*(f"torch {torch}" for torch in torches), *commits])
    return [f"machine: {names}" if names else "machine not recorded", versions]


def _in(measured: Table, variant: Variant) -> bool:
    rows = measured[(measured["model"] == variant.model) & (measured["dataset"] == variant.dataset)]
    if "variant" in rows and rows["variant"].any():
        rows = rows[rows["variant"].map(lambda names: variant.name in str(names).split(" − "))]
    return not rows.empty


def _describe_answers(runs: Runs, answered: Sequence[Variant]) -> Iterator[str]:
    if not answered:
        return
    yield "Measured: " + _listed(f"{v.model} ({v.engine})" for v in answered)
    datasets = distinct(v.dataset for v in answered)
    yield _listed(_questions(runs, answered, dataset) for dataset in datasets)
    yield _listed(
        f"{v.name} ranks by the {v.param('reduce') or 'mean'} of attention over tokens"
        for v in answered
        if v.param("saliency") == "attention"
    )
    yield "intervals: 95%"
    yield from _place([(provenance_of(v), v.device) for v in answered])


def _timed(runs: Runs, measured: Table) -> str:
    """Where the measured times of the table were taken, if it holds any."""
    clocked = measured[measured["source"] == CellSource.LATENCY]
    pairs = set(zip(clocked["model"], clocked["dataset"], strict=True))
    files = (*runs.latencies, *runs.loads, *runs.streams) if pairs else ()
    times = _listed(
        f"{times.model} ({precision(times.protocol)}) on {place(times)}"
        for times in files
        if (times.model, times.dataset) in pairs
    )
    return times and f"times: {times}"


def _questions(runs: Runs, answered: Sequence[Variant], dataset: str) -> str:
    """Count a data set's questions, and the answers that the model's context cut."""
    used = [v for v in answered if v.dataset == dataset]
    counts = sorted({len(v.records) for v in used})
    shown = (
        counted(counts[0], "question")
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} questions"
    )
    entry = runs.config.datasets.get(dataset)
    facts = runs.facts(dataset)
    if facts and facts.questions and counts[-1] < facts.questions:
        shown += f" (a subset of {facts.questions:,})"
    elif entry and entry.limit:
        shown += " (a subset)"
    cut = [record.cut for v in used for record in v.records.values()]
    return f"{dataset}: {shown}" + (
        f", {sum(cut)} of {len(cut)} answers cut by the context" if any(cut) else ""
    )


def _describe_pipelines(runs: Runs, measured: Table) -> Iterator[str]:
    """Decoder, sequences, trials, threads and cores, filled indexes, intervals, machine, versions."""
    if "interval" not in measured:
        return
    variants = set(measured["variant"])
    shown = [system for system in systems(runs) if system.keys["variant"] in variants]
    names = {pipeline.name for system in shown for pipeline in system.used}
    used = [p for p in pipelines(runs) if not p.missing and p.name in names]
    if not used:
        return
    facts = [p.specification for p in used]
    yield "Measured: " + _listed(f"{s.model} ({s.dtype or 'dtype not recorded'})" for s in facts)
    for task in ("perplexity", "generate"):
        yield _listed(_sequences(p) for p in used if p.settings.task == task)
    yield _disturbed(used)
    yield _listed(_filled(system.index) for system in shown)
    yield "intervals: 95% over sequences, of seconds the quartiles of the trials"
    if AGAINST_NONE in set(measured["quantity"]):
        yield "in the figure those of a perplexity are of its paired difference from no retrieval"
    yield from _place([(p.meta.get("provenance") or {}, p.specification.device) for p in used])


def _describe_comparisons(runs: Runs, measured: Table) -> Iterator[str]:
    """Describe comparisons of stale queries: encoders, queries, texts, intervals, machine."""
    if measured.empty or "stale_tokens" not in measured:
        return
    reports = [(found, found.report) for found in comparisons(runs) if found.report]
    yield "Measured: chunks compared by " + _listed(found.encoder for found, _ in reports)
    yield _listed(
        f"{len(report.queries)} queries in {counted(report.texts, 'text')} of {report.tokens} tokens"
        f" {_source(found.text, found.database)}"
        for found, report in reports
    )
    yield _listed(_filled(found.index) for found, _ in reports)
    yield "intervals: 95% over queries"
    machines = _listed(machine(report.provenance or {}) for _, report in reports)
    yield f"machine: {machines or 'not recorded'}"


def _sequences(pipeline: PipelineRun) -> str:
    settings = pipeline.settings
    records = pipeline.all_records
    # by the ends of short texts
    most = "at most " if any(record.tokens < settings.tokens for record in records) else ""
    sequences = f"{counted(len(records), 'sequence')} of {most}{settings.tokens} tokens"
    if settings.task == "perplexity":
        return f"perplexity: {sequences} {_source(pipeline.text, pipeline.specification.database)}"
    where = f", decoder on cores {settings.cores}" if settings.cores else ""
    where += f", {counted(settings.threads, 'thread')}" if settings.threads else ""
    return f"latency: {sequences}, {counted(settings.trials, 'trial')}{where}"


def _source(text: str, database: str) -> str:
    """Describe where texts are from: an evaluation set with a database, or its held-out text."""
    return f"held out of {database}" if text == database else f"of {text}, database {database}"


def _disturbed(used: Sequence[PipelineRun]) -> str:
    shares = [p.load_share for p in used if p.settings.task == "generate"]
    if None in shares:
        return "what other processes took of the machine was not always recorded"
    most = max((share or 0.0 for share in shares), default=None)
    return "" if most is None else f"other processes took at most {most:.1%} of the machine"


def _filled(index: IndexName | None) -> str:
    if index is None or not index.filled:
        return ""
    return f"index {index.label}: filled to {index.filled:,} vectors drawn around real ones"
