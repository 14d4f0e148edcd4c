"""The small print of PipeRAG's items: what was read and generated, over which indexes, on which machine and cores."""

from __future__ import annotations

from ragauge.rendering.footer import listed, machine_and_versions, sentence
from ragauge.rendering.style import counted
from ragauge.results.cells import Table
from ragauge.results.pipelines import IndexName, PipelineEntry, pipelines
from ragauge.results.provenance import machine
from ragauge.results.runs import Runs
from ragauge.results.sequences import AGAINST_NONE
from ragauge.results.staleness import comparisons
from ragauge.results.systems import systems


def footer(runs: Runs, table: Table) -> str:
    """One line: decoder, sequences, trials, threads and cores, filled indexes, intervals, machine, versions."""
    measured = table[table["measured"].notna()]
    variants = set(measured["variant"])
    shown = [system for system in systems(runs) if system.keys["variant"] in variants]
    names = {pipeline.name for system in shown for pipeline in system.used}
    used = [p for p in pipelines(runs) if not p.missing and p.name in names]
    if not used:
        return "Nothing measured yet." if table.empty else "Nothing measured here: published numbers only."
    paired = (measured["quantity"] == AGAINST_NONE).any()
    blocks = [(p.meta.get("provenance") or {}, p.engine.get("device")) for p in used]
    return sentence(
        f"Measured: {listed(_model(p) for p in used)}",
        listed(_read(p) for p in used if p.settings.task == "perplexity"),
        listed(_generated(p) for p in used if p.settings.task == "generate"),
        _disturbed(used),
        listed(_filled(system.index) for system in shown),
        "intervals: bootstrap 95% over sequences, of seconds the quartiles of the trials",
        "in the figure those of a perplexity are of its paired difference from no retrieval" if paired else "",
        *machine_and_versions(blocks),
    )


def of_comparisons(runs: Runs, table: Table) -> str:
    """One line on what stale queries found: encoders, queries, texts, intervals, machine."""
    made = [(comparison, comparison.report) for comparison in comparisons(runs) if comparison.report is not None]
    if not made:
        return "Nothing measured here: published numbers only."
    texts = listed(
        f"{len(report.queries)} queries in {counted(report.texts, 'text')} of {report.tokens} tokens"
        f" {_source(comparison.text, comparison.database)}"
        for comparison, report in made
    )
    return sentence(
        f"Measured: chunks compared by {listed(comparison.encoder for comparison, _ in made)}",
        texts,
        listed(_filled(comparison.index) for comparison, _ in made),
        "intervals: bootstrap 95% over queries",
        "machine: " + (listed(machine(report.provenance or {}) for _, report in made) or "not recorded"),
    )


def _model(pipeline: PipelineEntry) -> str:
    return f"{pipeline.specification.model} ({pipeline.engine.get('dtype') or 'dtype not recorded'})"


def _read(pipeline: PipelineEntry) -> str:
    count, length = len(pipeline.all_records), pipeline.settings.tokens
    source = _source(pipeline.text, pipeline.specification.database)
    return f"perplexity: {counted(count, 'sequence')} of {length} tokens {source}"


def _source(text: str, database: str) -> str:
    """Where texts are from: an evaluation set beside a database, or what is held out of it."""
    return f"held out of {database}" if text == database else f"of {text}, database {database}"


def _generated(pipeline: PipelineEntry) -> str:
    count, trials = len(pipeline.all_records), pipeline.settings.trials
    cores, threads = pipeline.engine.get("cores"), pipeline.engine.get("threads")
    where = f", decoder on cores {cores}" if cores else ""
    where += f", {counted(threads, 'thread')}" if threads else ""
    sizes = f"{counted(count, 'sequence')} of {pipeline.settings.tokens} tokens, {counted(trials, 'trial')}"
    return f"latency: {sizes}{where}"


def _disturbed(used: list[PipelineEntry]) -> str:
    """What others took of the machine while generations were timed."""
    shares = [p.load_share for p in used if p.settings.task == "generate"]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return "what other processes took of the machine was not always recorded"
    return f"other processes took at most {max(known):.1%} of the machine" if known else ""


def _filled(index: IndexName | None) -> str:
    """A filled index is named in every small print."""
    if index is None or not index.filled:
        return ""
    return f"index {index.label}: filled to {index.filled:,} vectors drawn around real ones"
