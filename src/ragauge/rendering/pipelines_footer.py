"""The small print of PipeRAG's items: what was read and generated, over which indexes, on which machine and cores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ragauge.rendering.style import counted
from ragauge.results import pipelines
from ragauge.results.provenance import machine
from ragauge.results.runs import Runs

if TYPE_CHECKING:
    import pandas as pd


def footer(runs: Runs, table: pd.DataFrame) -> str:
    """One line: decoder, sequences, trials, threads and cores, filled indexes, intervals, machine, versions."""
    measured = table[table["measured"].notna()]
    names = {name for text in measured["variant"] for name in str(text).split(" + ")}
    used = [p for p in pipelines.pipelines(runs) if not p.missing and p.name in names]
    if not used:
        return "Nothing measured yet." if table.empty else "Nothing measured here: published numbers alone."
    paired = (measured["quantity"] == pipelines.AGAINST_NONE).any()
    parts = [
        f"Measured: {_join(_model(p) for p in used)}",
        _join(_read(p) for p in used if p.task == "perplexity"),
        _join(_generated(p) for p in used if p.task == "generate"),
        _disturbed(used),
        _join(_index(text) for text in measured["index"]),
        "intervals: bootstrap 95% over sequences, of seconds the quartiles of the trials",
        "in the figure those of a perplexity are of its paired difference from no retrieval" if paired else "",
        *_machine(used),
    ]
    return "; ".join(part for part in parts if part) + "."


def of_comparisons(runs: Runs, table: pd.DataFrame) -> str:
    """One line on what stale queries found: encoders, queries, texts, intervals, machine."""
    made = [report for report in pipelines.comparisons(runs) if not report.get("missing")]
    if not made:
        return "Nothing measured here: published numbers alone."
    texts = _join(
        f"{len(r['queries'])} queries in {counted(r['texts'], 'text')} of {r['tokens']} tokens"
        f" held out of {r['dataset']}"
        for r in made
    )
    parts = [
        f"Measured: chunks compared by {_join(str(r['encoder']) for r in made)}",
        texts,
        _join(_index(f"{r['index']} (filled: {r['filled']:,})") for r in made if r.get("filled")),
        "intervals: bootstrap 95% over queries",
        "machine: " + (_join(machine(r.get("provenance") or {}, None) for r in made) or "not recorded"),
    ]
    return "; ".join(part for part in parts if part) + "."


def _model(pipeline: pipelines.Pipeline) -> str:
    return f"{pipeline.model} ({pipeline.setting('dtype') or 'dtype not recorded'})"


def _read(pipeline: pipelines.Pipeline) -> str:
    count, length = len(pipeline.all_records), pipeline.setting("tokens")
    return f"perplexity: {counted(count, 'sequence')} of {length} tokens held out of {pipeline.dataset}"


def _generated(pipeline: pipelines.Pipeline) -> str:
    count, trials = len(pipeline.all_records), pipeline.setting("trials")
    cores = pipeline.meta.get("cores")
    where = f", decoder on cores {cores}" if cores else ""
    threads = pipeline.setting("threads")
    where += f", {counted(threads, 'thread')}" if threads else ""
    sizes = f"{counted(count, 'sequence')} of {pipeline.setting('tokens')} tokens, {counted(trials, 'trial')}"
    return f"latency: {sizes}{where}"


def _disturbed(used: list[pipelines.Pipeline]) -> str:
    """What others took of the machine while generations were timed."""
    shares = [p.load_share for p in used if p.task == "generate"]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return "what other processes took of the machine was not always recorded"
    return f"other processes took at most {max(known):.1%} of the machine" if known else ""


def _index(text: Any) -> str:
    """A filled index is named in every small print."""
    label, filled, count = str(text).partition(" (filled: ")
    return f"index {label}: filled to {count.rstrip(')')} vectors drawn around real ones" if filled else ""


def _machine(used: list[pipelines.Pipeline]) -> list[str]:
    blocks = [(p.meta.get("provenance") or {}, p.setting("device")) for p in used]
    names = _join(machine(block, device) for block, device in blocks)
    versions = []
    for block, _ in blocks:
        torch, git = (block.get("packages") or {}).get("torch"), block.get("git") or {}
        versions.append(f"torch {torch}" if torch else "")
        if git.get("commit"):
            versions.append(f"commit {git['commit'][:9]}" + (" with changes" if git.get("dirty") else ""))
    return [f"machine: {names}" if names else "machine not recorded", _join(versions)]


def _join(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
