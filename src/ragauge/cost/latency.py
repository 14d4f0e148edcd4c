"""The latency protocol: warmed up, methods interleaved, many trials, the machine's other load watched.

Time to first token, time per output token and total of a response of a fixed number of tokens (Superposition
Prompting, section 4.2, takes the median of 30 responses of 5 tokens). What a method prepares before the question is
known is ready before the clock starts; the question, the task and the response are inside it.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from ragauge.cost import cold, gap
from ragauge.cost.cycles import critical_path
from ragauge.cost.flop import flop
from ragauge.cost.gpu_load import GpuWatch, watch
from ragauge.cost.machine import MAX_LOAD, PAUSE_S, Load, competing_load, measure, provenance
from ragauge.cost.settings import TRIALS, WARMUP
from ragauge.cost.trace import Trace, online, stage_seconds
from ragauge.errors import UserError
from ragauge.io.progress import bar

CACHE_STATE = "what a method prepares before the question is known is ready; question, task and response are timed"
MAX_DISTURBED = 0.1  # part of the trials that may stay disturbed after their retries
RETRIES = 3  # of one disturbed trial
TIMES = ("first_token_s", "per_token_s", "total_s")


@dataclass(frozen=True)
class Trial:
    """One timed answer."""

    first_token_s: float  # until the first token was known
    total_s: float  # until the last one was
    new_tokens: int
    load: Load
    stages: Mapping[str, float]  # seconds of each

    @property
    def per_token_s(self) -> float | None:
        """Seconds of each token after the first; None where there was one only."""
        return (self.total_s - self.first_token_s) / (self.new_tokens - 1) if self.new_tokens > 1 else None

    @property
    def disturbed(self) -> bool:
        return self.load.share > MAX_LOAD


def run(
    variants: Mapping[str, Any],
    prompts: Sequence[Any],
    engine: Any,
    *,
    limits: Any,
    trials: int = TRIALS,
    warmup: int = WARMUP,
    seed: int = 0,
    dataset: str = "random tokens",
    naive: str | None = None,
    machine: Mapping[str, Any] | None = None,
    allow_load: bool = False,
    disk: cold.Disk | None = None,
    documents_cold: bool = False,
) -> dict[str, Any]:
    """Time every method variant on the prompts.

    Args:
        variants: `ragauge.methods.Method` by name.
        prompts: `ragauge.prompts.Prompt`s; the trials are divided over them, and one prompt's prepared states are held
            at a time.
        engine: `ragauge.engines.LM`.
        limits: `ragauge.engines.Limits(max_new_tokens=n, ignore_stop=True)`.
        trials: of each variant.
        warmup: untimed answers of each variant on each prompt, at least one; the last one's calls are traced.
        dataset: where the prompts are from, for the protocol.
        naive: the variant that reads one plain prompt, against which the others' gaps between theory and clock are
            given.
        machine: what `cost.machine.measure` returned; measured here by default.
        allow_load: report although other processes kept the machine busy.
        disk: where given, variants that read the same documents compute them once between them; their keys and values
            are the same bits.
        documents_cold: what a method prepares is also timed as it comes from that disk (`cost.cold`).

    Returns: {"provenance", "protocol", "machine", "load", "refused", "unsupported", "stages", "gap", "summary",
        "rows", "documents" (the trials of cold documents; None without)}. Where the machine was too busy, `refused`
        says so, `summary` and `gap` are empty; the rows are kept.

    Raises:
        UserError: no prompts, no trials, more threads than cores, or a response that the context cuts short.
    """
    _check(prompts, limits, trials)
    if documents_cold and disk is None:
        raise UserError("documents: cold requires a disk to read them from")
    machine = machine or measure(device=engine.device.type, allow_load=allow_load)
    unsupported = {name: reason for name, method in variants.items() if (reason := method.refusal(engine))}
    able = {name: method for name, method in variants.items() if name not in unsupported}
    shares = [trials // len(prompts) + (i < trials % len(prompts)) for i in range(len(prompts))]
    with bar(f"timing on {dataset}", "trial", len(able) * trials) as progress, _quiet_collector():
        bench = _Bench(
            able,
            engine,
            limits,
            machine,
            warmup=max(warmup, 1),
            order=random.Random(seed),
            retries_left=0 if allow_load else len(able) * trials,
            disk=disk,
            documents_cold=documents_cold,
            progress=progress,
            gpu=watch(str(engine.device)),
        )
        for index, (prompt, share) in enumerate(zip(prompts, shares, strict=True)):
            if share:
                bench.time_prompt(index, prompt, share)
    refused = (
        None if allow_load else refusal_for_load(bench.rows, bench.load, machine.get("load_share", 0.0), bench.gpu)
    )
    stages = _timed_stages(bench.stages, bench.rows, allow_load)
    return {
        "provenance": provenance(),
        "protocol": {
            **_protocol(prompts, engine, limits, trials, max(warmup, 1), seed, dataset),
            "allow_load": allow_load,
        },
        "machine": dict(machine),
        "load": _load_json(bench),
        "refused": refused,
        "unsupported": unsupported,
        "stages": stages,
        "gap": {} if refused else gaps(stages, bench.rows, naive, allow_load),
        "summary": {} if refused else summarise(bench.rows, allow_load),
        "rows": bench.rows,
        "documents": {"state": cold.STATE, "rows": bench.documents} if documents_cold else None,
    }


def summarise(rows: Sequence[Mapping[str, Any]], disturbed: bool = False) -> dict[str, dict[str, dict[str, float]]]:
    """Median, quartiles and number of each variant's times; disturbed trials are left out unless asked for."""
    kept = [row for row in rows if disturbed or not row["disturbed"]]
    return {
        name: {time_: spread([row[time_] for row in kept if row["variant"] == name]) for time_ in TIMES}
        for name in dict.fromkeys(row["variant"] for row in kept)
    }


def gaps(
    stages: Mapping[str, gap.Stages], rows: Sequence[Mapping[str, Any]], naive: str | None, disturbed: bool = False
) -> dict[str, dict[str, Any]]:
    """Why each variant's measured speedup over naive is not the theoretical one (`cost.gap`), on the first prompt."""
    first = [row for row in rows if row["prompt"] == 0]
    total_s = {name: times["total_s"]["median"] for name, times in summarise(first, disturbed).items()}
    if naive not in total_s:
        return {}
    base, plain = total_s[naive], stages[naive]
    return {name: gap.explain(stages[name], s, plain, base) for name, s in total_s.items() if name != naive}


def _timed_stages(
    stages: Mapping[str, gap.Stages], rows: Sequence[Mapping[str, Any]], disturbed: bool
) -> dict[str, dict[str, dict[str, float]]]:
    """The stages with the median seconds of the first prompt's trials in place of the warm-up's."""
    kept = [row for row in rows if row["prompt"] == 0 and (disturbed or not row["disturbed"])]

    def timed(name: str, stage: str, warm_s: float) -> float:
        trials = [row["stages"][stage] for row in kept if row["variant"] == name and stage in row["stages"]]
        return statistics.median(trials) if trials else warm_s

    return {
        name: {stage: {**of, "seconds": timed(name, stage, of["seconds"])} for stage, of in found.items()}
        for name, found in stages.items()
    }


def spread(values: Sequence[float | None]) -> dict[str, float]:
    """{"median", "q1", "q3", "n"} of the values that are there."""
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return {**{key: value for value in known for key in ("median", "q1", "q3")}, "n": len(known)}
    q1, median, q3 = statistics.quantiles(known, n=4, method="inclusive")
    return {"median": median, "q1": q1, "q3": q3, "n": len(known)}


@dataclass
class _Bench:
    """The trials of one run, as they come in."""

    variants: Mapping[str, Any]
    engine: Any
    limits: Any
    machine: Mapping[str, Any]
    warmup: int
    order: random.Random
    retries_left: int  # of the whole run, so that a busy machine cannot stretch it without end
    disk: cold.Disk | None
    documents_cold: bool
    progress: Any  # a bar of trials, moved between them, never in one
    gpu: GpuWatch | None  # that the decoder is on; None: it is not on one, or nothing tells of it
    retried: int = 0
    load: Load = field(default_factory=Load)  # of all undisturbed trials together: what was too short to see in each
    rows: list[dict[str, Any]] = field(default_factory=list)
    stages: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    documents: list[dict[str, Any]] = field(default_factory=list)  # trials of what is prepared

    def time_prompt(self, index: int, prompt: Any, trials: int) -> None:
        """Prepare every variant on a prompt, warm it up, and time it `trials` times in seeded random orders."""
        self.progress.set_postfix_str("preparing documents")
        with self.disk.keep(self.engine) if self.disk else nullcontext():
            states = {name: method.prepare(self.engine, prompt) for name, method in self.variants.items()}
        traces = {name: self._warm(name, states[name], prompt) for name in self.variants}
        costs = {name: self._costs(name, trace) for name, trace in traces.items()}
        self.progress.set_postfix_str("")
        for _ in range(trials):
            gc.collect()
            self._look()
            names = list(self.variants)
            self.order.shuffle(names)
            for name in names:
                trial = self._undisturbed(name, states[name], prompt)
                self.load += Load() if trial.disturbed else trial.load
                self.rows.append(self._row(name, index, trial) | costs[name])
                self.progress.update()
        self._look()
        if self.disk and self.documents_cold:
            del states, traces  # memory for what is prepared anew
            self._time_documents(self.disk, index, prompt)

    def _look(self) -> None:
        if self.gpu:
            self.gpu.look()

    def _time_documents(self, disk: cold.Disk, index: int, prompt: Any) -> None:
        """What each variant prepares: computed, written and read, once a prompt, since computing takes seconds."""
        for name, method in self.variants.items():
            gc.collect()
            found = cold.time_documents(name, partial(method.prepare, self.engine, prompt), self.engine, disk)
            if found:
                self.documents.append({"variant": name, "prompt": index, **found})

    def _warm(self, name: str, state: Any, prompt: Any) -> Trace:
        """Answer untimed; the trace of the last answer, whose shapes the timed ones share."""
        for _ in range(self.warmup - 1):
            self._answer(name, state, prompt)
        with self.engine.tracing() as trace:
            self._answer(name, state, prompt)
        return list(trace)

    def _answer(self, name: str, state: Any, prompt: Any) -> None:
        answer = self.variants[name].answer(self.engine, state, prompt, self.limits)
        if len(answer.ids) != self.limits.max_new_tokens:
            raise UserError(
                f"{name}: the model's context of {self.engine.shape.max_context} tokens ends the response after "
                f"{len(answer.ids)} of {self.limits.max_new_tokens} tokens"
            )

    def _undisturbed(self, name: str, state: Any, prompt: Any) -> Trial:
        """A trial; repeated, up to RETRIES times, while other processes keep the machine busy."""
        trial = self._trial(name, state, prompt)
        for _ in range(RETRIES):
            if not trial.disturbed or not self.retries_left:
                break
            self.retries_left -= 1
            self.retried += 1
            time.sleep(PAUSE_S)
            trial = self._trial(name, state, prompt)
        return trial

    def _trial(self, name: str, state: Any, prompt: Any) -> Trial:
        self.engine.synchronize()
        with competing_load() as load, self.engine.tracing() as trace:
            started = time.perf_counter()
            self._answer(name, state, prompt)
            self.engine.synchronize()
            finished = time.perf_counter()
        first_token_s = self.engine.first_token_at - started
        return Trial(first_token_s, finished - started, self.limits.max_new_tokens, load, stage_seconds(trace))

    def _row(self, name: str, prompt: int, trial: Trial) -> dict[str, Any]:
        return {
            "variant": name,
            "trial": sum(row["variant"] == name for row in self.rows),
            "prompt": prompt,
            **{time_: getattr(trial, time_) for time_ in TIMES},
            "stages": dict(trial.stages),
            "load_share": trial.load.share,
            "disturbed": trial.disturbed,
        }

    def _costs(self, name: str, trace: Trace) -> dict[str, Any]:
        """Costs of the answers of one prompt; its stages' seconds and floors are kept where it is the first."""
        shape = self.engine.shape
        stages = gap.stages(trace, shape, self.engine.precision, self.machine)
        self.stages.setdefault(name, stages)
        return {
            "flop": flop(online(trace), shape),
            "compute_cycles": critical_path(trace, shape),
            "roofline_s": sum(stage["roofline_s"] for stage in stages.values()),
        }


def _check(prompts: Sequence[Any], limits: Any, trials: int) -> None:
    import psutil
    import torch

    if not prompts:
        raise UserError("the latency protocol needs at least one prompt")
    if trials < 1:
        raise UserError(f"trials: at least 1 is needed; got {trials}")
    if not limits.ignore_stop:
        raise ValueError("the latency protocol needs limits that ignore stops")
    cores = psutil.cpu_count() or 1
    if torch.get_num_threads() > cores:
        raise UserError(f"threads: torch has {torch.get_num_threads()} threads on {cores} cores; use {cores} or fewer")


def refusal_for_load(
    rows: Sequence[Mapping[str, Any]], load: Load, machine_share: float, gpu: GpuWatch | None = None
) -> str | None:
    """Why the times must not be reported; None if the machine was quiet enough."""
    disturbed = sum(row["disturbed"] for row in rows)
    if disturbed > MAX_DISTURBED * len(rows):
        found = f"disturbed {disturbed} of {len(rows)} trials (allowed: {MAX_DISTURBED:.0%})"
    elif load.share > MAX_LOAD:
        found = f"took {load.share:.0%} of the machine's CPU time (allowed: {MAX_LOAD:.0%})"
    elif machine_share > MAX_LOAD:
        found = f"took {machine_share:.0%} of its CPU time while the machine's rates were measured"
    elif gpu and (on_gpu := gpu.refusal()):
        return f"{on_gpu}; run it on an idle GPU, or allow the load"
    else:
        return None
    return f"other processes {found}; run it on an idle machine, or allow the load"


def _protocol(
    prompts: Sequence[Any], engine: Any, limits: Any, trials: int, warmup: int, seed: int, dataset: str
) -> dict[str, Any]:
    import torch

    return {
        "dataset": dataset,
        "tokens": prompts[0].token_counts(),  # of the first prompt
        "prompts": len(prompts),
        "new_tokens": limits.max_new_tokens,
        "trials": trials,
        "warmup": warmup,
        "seed": seed,
        "threads": torch.get_num_threads(),
        **asdict(engine.precision),
        "device": engine.device.type,
        "cuda_graphs": cuda_graphs(engine),
        "cache_state": CACHE_STATE,
    }


def cuda_graphs(engine: Any) -> str | None:
    """Whether tokens were decoded by CUDA graphs: "on", or "off" with the reason; None on a device without them."""
    steps = getattr(engine, "steps", None)
    if steps is None:
        return None
    return f"off: {steps.fallback}" if steps.fallback else "on"


def _load_json(bench: _Bench) -> dict[str, Any]:
    return {
        "share": bench.load.share,
        "others_cpu_s": bench.load.others_cpu_s,
        "seconds": bench.load.seconds,
        "disturbed": sum(row["disturbed"] for row in bench.rows),
        "retried": bench.retried,
        "allowed_share": MAX_LOAD,
        "gpu": bench.gpu.to_json() if bench.gpu else None,
    }


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the trials; it runs between rounds of them."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
