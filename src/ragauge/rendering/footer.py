"""The small print of every table and figure: what was measured, on how many questions, in which precision, where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragauge.rendering.style import counted
from ragauge.results.cells import CellSource, Table
from ragauge.results.provenance import commit, machine, where_asked
from ragauge.results.runs import Runs, Variant
from ragauge.results.timing import precision


def footer(runs: Runs, table: Table) -> str:
    """One line: models with precision, data sets with the number of questions and of answers that the context cut,
    intervals, machine, versions."""
    used = [v for v in runs.run if _in(table, v)]
    timed = _timed(runs, table)
    if not used and not timed:
        return "Nothing measured yet." if table.empty else "Nothing measured here: published numbers only."
    if not used:
        return f"{timed}."
    models = listed(f"{v.model} ({v.engine})" for v in used)
    asked = listed(_questions(runs, used, dataset) for dataset in dict.fromkeys(v.dataset for v in used))
    blocks = [(where_asked(v), v.device) for v in used]
    return sentence(f"Measured: {models}", asked, "intervals: bootstrap 95%", *machine_and_versions(blocks), timed)


def sentence(*parts: str) -> str:
    """The parts of a small print, empty ones left out."""
    return "; ".join(part for part in parts if part) + "."


def listed(texts: Iterable[str]) -> str:
    """Texts in one line, each once, empty ones left out."""
    return ", ".join(dict.fromkeys(text for text in texts if text))


def machine_and_versions(blocks: Sequence[tuple[Mapping[str, Any], str | None]]) -> tuple[str, str]:
    """Where numbers were measured and with which torch and code, from their provenance blocks, each with its device."""
    names = listed(machine(block, device) for block, device in blocks)
    versions: list[str] = []
    for block, _ in blocks:
        torch = (block.get("packages") or {}).get("torch")
        versions += [f"torch {torch}" if torch else "", commit(block)]
    return f"machine: {names}" if names else "machine not recorded", listed(versions)


def _in(table: Table, variant: Variant) -> bool:
    rows = table[(table["model"] == variant.model) & (table["dataset"] == variant.dataset)]
    if "variant" in rows.columns and (rows["variant"] != "").any():
        rows = rows[rows["variant"].map(lambda names: variant.name in str(names).split(" − "))]
    return bool(rows["measured"].notna().any())


def _timed(runs: Runs, table: Table) -> str:
    """Where the measured times of the table were taken, if it holds any."""
    clocked = table[(table["source"] == CellSource.LATENCY) & table["measured"].notna()]
    told = []
    for latency in (*runs.latencies, *runs.loads, *runs.streams):
        protocol = latency.get("protocol") or {}
        if ((clocked["model"] == latency["model"]) & (clocked["dataset"] == latency["dataset"])).any():
            place = machine(latency.get("provenance") or {}, protocol.get("device")) or "a machine not recorded"
            told.append(f"{latency['model']} ({precision(protocol)}) on {place}")
    return f"times: {listed(told)}" if told else ""


def _questions(runs: Runs, used: list[Variant], dataset: str) -> str:
    counts = sorted({len(v.records) for v in used if v.dataset == dataset})
    shown = counted(counts[0], "question") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} questions"
    entry = runs.config.datasets.get(dataset) if runs.config else None
    facts = runs.facts(dataset)
    whole = facts.questions if facts else None
    subset = f"a subset of {whole:,}" if whole and counts[-1] < whole else "a subset" if entry and entry.limit else ""
    return f"{dataset}: {shown}" + (f" ({subset})" if subset else "") + _cut(used, dataset)


def _cut(used: list[Variant], dataset: str) -> str:
    """How many answers end where the model's context does, of all variants together; empty if none."""
    found = [record.get("cut", False) for v in used if v.dataset == dataset for record in v.records.values()]
    return f", {sum(found)} of {len(found)} answers cut by the context" if any(found) else ""
