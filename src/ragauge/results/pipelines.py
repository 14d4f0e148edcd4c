"""What PipeRAG's items share: pipelines with their records, systems that are compared, and their measures.

A pipeline either scores given text (perplexity) or continues it (latency). A system is a schedule with its interval,
nprobe and options over one index; its perplexity and its latency come from pipelines of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ragauge.io import records
from ragauge.cost.machine import MAX_LOAD
from ragauge.cost.trace import Call, Trace
from ragauge.errors import UserError
from ragauge.results.cells import Cell, Measure, join, noted
from ragauge.results.publications import read_csv
from ragauge.results.runs import Runs
from ragauge.io.records import SequenceRecord

if TYPE_CHECKING:
    from ragauge.generation.settings import PipelineSettings

KEYS = ("model", "dataset", "method", "interval", "nprobe", "index", "options", "variant")
PAPER = "the paper's RETRO"
OTHER = "published for another model, corpus and machine"
KINDS = ("no_retrieval", "retrieve_once", "random", "retro", "retro_plus", "piperag")
PUBLISHED_KINDS = {"no_retrieval": "no_retrieval", "retro": "retro", "piperag_s3": "piperag"}
AGAINST_NONE = "minus_no_retrieval_nats"
AGAINST_RANDOM = "retrieved_minus_random_nats"
UNNAMED = "held-out text"  # data set of a database whose name nothing says
HIDE = "S3"  # in the column nprobe: as many lists as decoding hides
RESAMPLES = 10_000
Text = tuple[str, int]  # a sequence: its key and its tokens


@dataclass(frozen=True, eq=False)
class Pipeline:
    """One entry of the section `pipelines`: its settings and, where it has run, its records."""

    name: str
    dataset: str  # label of the database, whose held-out text is read
    model: str
    index: str  # label of the index that is asked; "" where none is
    task: str
    kind: str
    interval: int
    nprobe: str  # a number, S3, or "" where nothing is searched
    options: str  # what else makes it another system, in words
    meta: Mapping[str, Any]
    path: Path
    missing: str | None = None  # why there are no records

    @cached_property
    def all_records(self) -> list[SequenceRecord]:
        """Its records, failed ones included."""
        return [] if self.missing else records.read_kind(self.path, SequenceRecord)

    @cached_property
    def records(self) -> list[SequenceRecord]:
        """The records of the sequences that did not fail."""
        return [record for record in self.all_records if record.status == "ok"]

    @cached_property
    def nll(self) -> dict[Text, float]:
        """Mean negative log-likelihood of a token, by sequence."""
        return {(r.key, r.tokens): r.nll for r in self.records if r.nll is not None and math.isfinite(r.nll)}

    @cached_property
    def trials_s(self) -> list[float]:
        """Seconds of all trials of all sequences."""
        return [s for record in self.records for s in record.trials_s if math.isfinite(s) and s > 0]

    @property
    def load_share(self) -> float | None:
        """The most of the machine that other processes took during trials; None where that was not recorded."""
        return max((r.load_share for r in self.records if r.load_share is not None), default=None)

    @cached_property
    def traces(self) -> list[Trace]:
        """The traces of the median trials, one a sequence."""
        return [[Call.from_json(call) for call in record.trace] for record in self.records]

    def setting(self, name: str) -> Any:
        """A field of the fingerprint; None where it has none."""
        return (self.meta.get("fingerprint") or {}).get(name)


@dataclass(frozen=True, eq=False)
class System:
    """A schedule with everything that belongs to it, and the pipelines that measured it."""

    model: str
    dataset: str
    kind: str
    interval: int
    nprobe: str
    index: str
    options: str
    scored: Pipeline | None = None
    timed: Pipeline | None = None
    note: str = ""
    filled: int | None = None
    asked: tuple[Pipeline, ...] = ()  # configured and without records

    @property
    def keys(self) -> dict[str, Any]:
        """The row of a table that it is."""
        used = dict.fromkeys(p.name for p in (self.scored, self.timed, *self.asked) if p is not None)
        windowed = self.kind not in ("no_retrieval", "retrieve_once")
        return {
            "model": self.model,
            "dataset": self.dataset,
            "method": self.kind,
            "interval": str(self.interval) if windowed else "",
            "nprobe": self.nprobe,
            "index": self.index + (f" (filled: {self.filled:,})" if self.filled else ""),
            "options": self.options,
            "variant": " + ".join(used),
        }


def pipelines(runs: Runs) -> list[Pipeline]:
    """The pipelines with records, in the configuration's order, then those of it that have none."""
    entries = runs.config.pipelines if runs.config else {}
    found = {path.stem: path for path in sorted((runs.folder / "pipelines").glob("*.jsonl"))}
    order = {name: place for place, name in enumerate(entries)}
    names = sorted(found, key=lambda name: (order.get(name, len(order)), name))
    known = _placed([_found(runs, name, found[name], entries.get(name)) for name in names])
    return known + [_asked(runs, name, entry) for name, entry in entries.items() if name not in found]


def systems(runs: Runs) -> list[System]:
    """All systems, in the order of KINDS, then of interval and nprobe; a latency without its perplexity borrows one.

    An index that was filled finds what the database without drawn vectors has, so that the perplexity beside its
    latency is that of another index of the same database; the row says so.
    """
    grouped: dict[tuple[Any, ...], list[Pipeline]] = {}
    for p in pipelines(runs):
        grouped.setdefault((p.model, p.dataset, p.kind, p.interval, p.nprobe, p.index, p.options), []).append(p)
    found = [_system(runs, key, members) for key, members in grouped.items()]
    return sorted((_with_perplexity(s, found) for s in found), key=_order)


def groups(found: Iterable[System]) -> dict[tuple[str, str], list[System]]:
    """Systems by (model, data set)."""
    by: dict[tuple[str, str], list[System]] = {}
    for system in found:
        by.setdefault((system.model, system.dataset), []).append(system)
    return by


def has_records(system: System) -> bool:
    """Whether anything of it was measured."""
    return system.scored is not None or system.timed is not None


# --- measures ---


def shared_keys(found: Iterable[System]) -> set[Text]:
    """The sequences that all of the scored systems have in common: what their perplexities can be compared on."""
    keys = [set(s.scored.nll) for s in found if s.scored is not None and s.scored.nll]
    return set.intersection(*keys) if keys else set()


def perplexity(runs: Runs, system: System, keys: set[Text] | None = None) -> Measure:
    """exp of the mean negative log-likelihood of a token; the interval is over sequences, which have equal lengths."""
    from ragauge.results.stats import bootstrap_interval

    if system.scored is None:
        return Measure(note=_why(system, "perplexity"))
    known = system.scored.nll
    nll = [value for key, value in known.items() if not keys or key in keys]
    if not nll:
        return Measure(note=_failed(system.scored) or "no sequence has a likelihood")
    note = f"on the {len(nll)} sequences that all systems share" if len(nll) < len(known) else ""
    note = "the systems share no sequence" if keys is not None and not keys else note
    measure = Measure(math.exp(sum(nll) / len(nll)), n=len(nll), note=join(note, _failed(system.scored), system.note))
    if len(nll) < 2:
        return measure
    low, high = bootstrap_interval(nll, seed=runs.seed)
    return replace(measure, low=math.exp(low), high=math.exp(high))


def quality(runs: Runs, group: Iterable[System], system: System, shared: set[Text]) -> Iterator[Cell]:
    """The cells of a system's perplexity, and of its paired difference from no retrieval on the same sequences."""
    yield Cell(system.keys, "perplexity", perplexity(runs, system, shared))
    none = next((s.scored for s in group if s.kind == "no_retrieval" and s.scored is not None), None)
    if system.scored is not None and none is not None and system.kind != "no_retrieval":
        yield Cell(system.keys, AGAINST_NONE, difference(runs, system.scored, none))


def latency(system: System) -> Measure:
    """Median seconds of a sequence; the interval is the quartiles of all trials."""
    return _of_trials(system, lambda p: p.trials_s)


def folded(system: System, fold: Callable[[Trace], float]) -> Measure:
    """The median over sequences of a fold of their traces."""
    return _of_trials(system, lambda p: [fold(trace) for trace in p.traces])


def speedup(runs: Runs, base: System | None, system: System) -> Measure:
    """How many times the base's median seconds are the system's; the interval resamples the trials of both."""
    if system.timed is None:
        return Measure(note=_why(system, "latency"))
    if base is None or base.timed is None:
        return Measure(note="not run: the other system was not timed")
    a, b = base.timed.trials_s, system.timed.trials_s
    if not a or not b:
        return Measure(note="no trial ended")
    low, high = _ratio_interval(a, b, runs.seed) if min(len(a), len(b)) > 1 else (None, None)
    return Measure(median(a) / median(b), low, high, min(len(a), len(b)), note=comparable(base.timed, system.timed))


def difference(runs: Runs, better: Pipeline | None, worse: Pipeline | None) -> Measure:
    """Paired difference in nats a token, over the sequences that both scored; below zero the first is better."""
    from ragauge.results.stats import paired_test

    if better is None or worse is None:
        return Measure(note="not run: one of the two was not scored")
    shared = [key for key in better.nll if key in worse.nll]
    if len(shared) < 2:
        return Measure(n=len(shared), note="fewer than two sequences in common")
    test = paired_test([better.nll[k] for k in shared], [worse.nll[k] for k in shared], seed=runs.seed)
    return Measure(test["difference"], test["low"], test["high"], len(shared), test["p"])


def control(runs: Runs, group: Sequence[System], system: System) -> Iterator[Cell]:
    """The paired difference of a system that retrieves from random neighbours, read in the same way."""
    if system.scored is None or system.kind in ("no_retrieval", "random"):
        return
    alike = [s for s in group if s.kind == "random" and s.scored is not None and s.options == system.options]
    chance = min(alike, key=lambda s: abs(s.interval - system.interval), default=None)
    measure = difference(runs, system.scored, chance.scored if chance else None)
    told = control_note(measure) if chance else "not run: no pipeline with random neighbours and these options"
    if chance and chance.interval != system.interval:
        told += f"; random neighbours every {chance.interval} tokens"
    yield Cell(system.keys, AGAINST_RANDOM, noted(replace(measure, note=""), told))


def control_note(measure: Measure) -> str:
    """What a paired difference between retrieved and random neighbours says."""
    if measure.value is None:
        return measure.note
    if measure.high is not None and measure.high < 0:
        return "retrieved neighbours beat random ones: the interval lies below zero"
    return "not shown: the interval of retrieved minus random neighbours includes zero"


def nprobes(system: System) -> list[int]:
    """Lists that were scanned at each retrieval of the timed sequences."""
    return [n for record in (system.timed.records if system.timed else []) for n in record.nprobe]


def comparable(a: Pipeline, b: Pipeline) -> str:
    """A warning where two latencies are of sequences of different length."""
    lengths = [p.setting("tokens") for p in (a, b)]
    return "" if lengths[0] == lengths[1] else f"sequences of {lengths[0]} and {lengths[1]} tokens"


# --- the paper's numbers ---


def statement(name: str) -> float:
    """A number of the paper's text."""
    return next(float(row["value"]) for row in read_csv("piperag_statements") if row["item"] == name)


def published_row(dataset: str, kind: str, **more: Any) -> dict[str, Any]:
    """The keys of a row of the paper's numbers."""
    return {"model": PAPER, "dataset": dataset, "method": kind, **dict.fromkeys(KEYS[3:], ""), **more}


def published_table() -> list[Cell]:
    """The cells of the paper's Table 1."""
    cells = []
    for line in read_csv("piperag_table_1"):
        s3 = {"nprobe": HIDE} if line["system"] == "piperag_s3" else {}
        keys = published_row(line["dataset"], PUBLISHED_KINDS[line["system"]], **s3)
        cells += [Cell(keys, q, Measure(note=OTHER), float(line[q])) for q in ("perplexity", "latency_s")]
    return cells


def logged(row: Mapping[str, str]) -> Cell:
    """A perplexity of the logs that PipeRAG's repository ships, as a cell."""
    kind = "no_retrieval" if row["no_retrieval"] == "1" else "piperag" if row["staleness"] == "1" else "retro"
    nprobe = "" if row["nprobe"] in ("", "None") else row["nprobe"]
    keys = published_row(
        "wikipedia" if row["config_set"].startswith("wikipedia") else "realnews",
        kind,
        interval=row["retrieval_interval"] if kind != "no_retrieval" else "",
        nprobe=nprobe,
        index=row["config_set"].partition("_eval_")[2].removesuffix(".json"),
        options=_logged_options(row) if kind != "no_retrieval" else "",
    )
    note = "from the logs of the paper's repository, sequences of 512 tokens; published for another model"
    return Cell(keys, "perplexity", Measure(note=note), float(row["perplexity"]))


def _logged_options(row: Mapping[str, str]) -> str:
    chunks = int(row["num_continuation_chunks"])
    told = [] if chunks == 1 else ["no continuation" if not chunks else f"{chunks} chunks of continuation"]
    if row["staleness"] == "1":
        told.append("stale context dropped" if row["remove_stale_context"] == "1" else "stale context kept")
    return ", ".join(told)


# --- reading ---


def comparisons(runs: Runs) -> list[dict[str, Any]]:
    """What `ragauge staleness` wrote, each with its label and data set, then what is configured and not there.

    Raises:
        UserError: a file that holds no comparison.
    """
    entries = runs.config.staleness if runs.config else {}
    found = {path.stem: path for path in sorted((runs.folder / "staleness").glob("*.json"))}
    known = []
    for label, path in found.items():
        entry = entries.get(label)
        known.append({**_comparison(path), "label": label, "dataset": entry.database if entry else label})
    lacking = {label: entry for label, entry in entries.items() if label not in found}
    return known + [
        {"model": e.encoder, "dataset": e.database, "index": e.index, "variant": label, "missing": "no such file yet"}
        for label, e in lacking.items()
    ]


def _comparison(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_bytes())
        stale, queries = report["stale_tokens"], report["queries"]
        whole = all(len(q["cosine"]) == len(stale) == len(q["chunks"]) - 1 for q in queries)
        named = all(report.get(key) is not None for key in ("encoder", "index", "nprobe"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a comparison of stale queries: {error!r}") from error
    if not (whole and named and stale):
        raise UserError(f"{path}: not a comparison of stale queries: queries without a cosine for each staleness")
    return dict(report)


def index_report(runs: Runs, dataset: str, index: str) -> Mapping[str, Any]:
    """What `ragauge index recall` wrote of an index (settings, vectors, filled); empty where there is no such file."""
    path = runs.folder / "databases" / dataset / "indexes" / index / "recall.json"
    if not index or not path.exists():
        return {}
    try:
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from error
    return report if isinstance(report, dict) else {}


def index_setting(runs: Runs, dataset: str, index: str, name: str) -> Any:
    """A setting of an index, from its report or the configuration; None where neither knows it."""
    settings = index_report(runs, dataset, index).get("settings")
    if isinstance(settings, Mapping):
        return settings.get(name)
    database = runs.config.databases.get(dataset) if runs.config else None
    recipe = database.indexes.get(index) if database else None
    return getattr(recipe, name, None)


def _found(runs: Runs, name: str, path: Path, entry: PipelineSettings | None) -> Pipeline:
    meta = records.read_meta(path) or {}
    told = meta.get("fingerprint") or {}
    schedule = told.get("schedule") or {}
    if not isinstance(schedule, dict) or not schedule:
        if entry is None:
            raise UserError(f"{path}: nothing says what it is of: no .meta.json beside it, and no such pipeline")
        return replace(_asked(runs, name, entry), meta=meta, path=path, missing=None)
    place = Path(str(told.get("index") or ""))
    index = place.name if place.parent.name == "indexes" else ""
    asks = schedule["kind"] not in ("no_retrieval", "random")
    dataset = _dataset(runs, entry, place if index else None)
    return Pipeline(
        name,
        dataset,
        _model(runs, entry, str(told.get("model") or "")),
        index or ("server" if asks else ""),
        str(told.get("task")),
        str(schedule["kind"]),
        int(schedule["interval"]),
        _nprobe(runs, dataset, index, HIDE if schedule.get("hide") else schedule.get("nprobe")) if asks else "",
        _options(schedule, told.get("form") or {}, told.get("adapters_sha256"), entry, told.get("engine")),
        meta,
        path,
    )


def _asked(runs: Runs, name: str, entry: PipelineSettings) -> Pipeline:
    """A pipeline of the configuration as if it had run, with the reason that it has not."""
    assert runs.config is not None
    path = runs.folder / "pipelines" / f"{name}.jsonl"
    dataset, index = runs.config.pipeline_database(entry), entry.index if entry.asks else ""
    unfinished = path.with_name(path.name + ".partial").exists()
    return Pipeline(
        name,
        dataset,
        runs.config.pipeline_model(entry),
        index,
        entry.task,
        entry.schedule,
        entry.interval,
        _nprobe(runs, dataset, index, HIDE if entry.nprobe == "hide" else entry.nprobe) if entry.asks else "",
        _options(entry.model_dump(), entry.model_dump(), entry.retrofit_minutes, entry, entry.engine),
        {},
        path,
        "unfinished" if unfinished else "no records",
    )


def _placed(found: Sequence[Pipeline]) -> list[Pipeline]:
    """The pipelines, those that ask no index under the name that others have for the same database."""
    names = {p.setting("database_sha256"): p.dataset for p in found if p.dataset != UNNAMED}
    return [
        replace(p, dataset=names.get(p.setting("database_sha256"), UNNAMED)) if p.dataset == UNNAMED else p
        for p in found
    ]


def _dataset(runs: Runs, entry: PipelineSettings | None, index: Path | None) -> str:
    if index is not None:
        return index.parent.parent.name
    return runs.config.pipeline_database(entry) if runs.config and entry else UNNAMED


def _model(runs: Runs, entry: PipelineSettings | None, source: str) -> str:
    if runs.config and entry:
        return runs.config.pipeline_model(entry)
    return source.rpartition("/")[2].rpartition(":")[2]


def _nprobe(runs: Runs, dataset: str, index: str, value: Any) -> str:
    """The lists scanned, in words; the index's own number where nothing says."""
    own = index_setting(runs, dataset, index, "nprobe") if value is None else value
    return "" if own is None else str(own)


def _options(
    schedule: Mapping[str, Any],
    form: Mapping[str, Any],
    adapters: Any,
    entry: PipelineSettings | None,
    engine: Any,
) -> str:
    """Everything that makes two pipelines of one schedule different systems."""
    minutes = entry.retrofit_minutes if entry else None
    k = schedule.get("k", schedule.get("neighbours", 2))
    told = {
        f"{k} neighbours": k != 2,
        "own article passed over": schedule.get("exclude") == "article",
        f"last {schedule.get('characters')} characters": schedule.get("characters"),
        "cross-attention": form.get("name", form.get("form")) == "cross_attention",
        "RETRO's own decoder and encoder": form.get("name", form.get("form")) == "retro",
        f"trained {minutes:g} minutes" if minutes else "trained": adapters,
        f"reach {form.get('reach')}": form.get("reach") is not None,
        f"bias {form.get('bias')}": form.get("bias"),
        "neighbours not read ahead": schedule.get("read_ahead") is False,
        "ONNX Runtime": engine == "onnx",
    }
    if schedule.get("kind", schedule.get("schedule")) == "no_retrieval":  # reads no neighbours in any way
        told = {text: applies for text, applies in told.items() if text == "ONNX Runtime"}
    return ", ".join(text for text, applies in told.items() if applies)


def _system(runs: Runs, key: tuple[Any, ...], members: Sequence[Pipeline]) -> System:
    model, dataset, kind, interval, nprobe, index, options = key
    ran = [p for p in members if not p.missing]
    return System(
        model,
        dataset,
        kind,
        interval,
        nprobe,
        index,
        options,
        next((p for p in ran if p.task == "perplexity"), None),
        next((p for p in ran if p.task == "generate"), None),
        filled=index_setting(runs, dataset, index, "filled"),
        asked=tuple(p for p in members if p.missing),
    )


def _with_perplexity(system: System, found: Sequence[System]) -> System:
    """The system with a perplexity: its own, or that of the same schedule where it was scored."""
    if system.scored is not None or system.timed is None:
        return system
    if system.nprobe == HIDE:
        return _with_hidden_perplexity(system, found)
    same = [s for s in _siblings(system, found) if s.nprobe == system.nprobe]
    if not same:
        return system
    return replace(system, scored=same[0].scored, note=f"perplexity with index {same[0].index}")


def _with_hidden_perplexity(system: System, found: Sequence[System]) -> System:
    """S3 chooses nprobe by the clock, so its text is scored at the largest nprobe that is at most the one it chose."""
    chosen = nprobes(system)
    siblings = [s for s in _siblings(system, found) if s.nprobe.isdigit()]
    if not chosen or not siblings:
        return system
    middle = median(chosen)
    below = [s for s in siblings if int(s.nprobe) <= middle]
    nearest = max(below, key=lambda s: int(s.nprobe)) if below else min(siblings, key=lambda s: int(s.nprobe))
    where = "" if nearest.index == system.index else f" and index {nearest.index}"
    note = f"perplexity at nprobe {nearest.nprobe}{where}; S3 chose {middle:g} in the middle"
    return replace(system, scored=nearest.scored, note=note)


def _siblings(system: System, found: Sequence[System]) -> list[System]:
    """The scored systems that differ in nprobe and index at most, the same index first."""
    alike = [
        s
        for s in found
        if s.scored is not None
        and (s.model, s.dataset, s.kind, s.interval, s.options)
        == (system.model, system.dataset, system.kind, system.interval, system.options)
    ]
    return sorted(alike, key=lambda s: (s.index != system.index, bool(s.filled)))


def _order(system: System) -> tuple[Any, ...]:
    nprobe = int(system.nprobe) if system.nprobe.isdigit() else 1 << 30
    place = (system.model, system.dataset, KINDS.index(system.kind), system.options, system.index)
    return (*place, system.interval, nprobe)


# --- small print ---


def _of_trials(system: System, values: Callable[[Pipeline], Sequence[float]]) -> Measure:
    """Median and quartiles of values of the timed pipeline."""
    from statistics import quantiles

    if system.timed is None:
        return Measure(note=_why(system, "latency"))
    found = [float(v) for v in values(system.timed)]
    if not found:
        return Measure(note=_failed(system.timed) or "no trial ended")
    low, _, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else (None, None, None)
    share = system.timed.load_share or 0.0
    busy = f"other processes took {share:.0%} of the machine" if share > MAX_LOAD else ""
    return Measure(median(found), low, high, len(found), note=join(_failed(system.timed), busy))


def _why(system: System, what: str) -> str:
    """Why a system has no number of that sort."""
    task = "perplexity" if what == "perplexity" else "generate"
    asked = [p for p in system.asked if p.task == task]
    if asked:
        return f"not run: {asked[0].missing} for pipeline {asked[0].name}"
    return f"not run: no pipeline of this experiment measures its {what}"


def _failed(pipeline: Pipeline) -> str:
    failed = [r for r in pipeline.all_records if r.status == "failed"]
    return f"{len(failed)} of {len(pipeline.all_records)} sequences failed: {failed[0].reason}" if failed else ""


def _ratio_interval(a: Sequence[float], b: Sequence[float], seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of median(a) / median(b); the trials of the two are resampled apart."""
    import numpy as np

    draw = np.random.default_rng(seed)
    tops, bottoms = (np.median(np.asarray(v)[draw.integers(len(v), size=(RESAMPLES, len(v)))], axis=1) for v in (a, b))
    low, high = np.quantile(tops / bottoms, [0.025, 0.975])
    return float(low), float(high)
