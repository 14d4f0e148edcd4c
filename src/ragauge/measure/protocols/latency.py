"""The latency protocol: warmed up, methods interleaved, many trials, the machine's other load
watched.

Time to first token, time per output token and total of a response of a fixed number of tokens
(Superposition Prompting, appendix C, takes the median of 30 responses of 5 tokens). What a method
prepares before the question is known is ready before the clock starts; the question, the task and
the response are inside it.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from ragauge.config.protocols import LatencySettings
from ragauge.cost import gap
from ragauge.cost.cycles import critical_path
from ragauge.cost.flop import flop
from ragauge.cost.machine import (
    MAX_LOAD,
    PAUSE_S,
    Load,
    competing_load,
    measure,
    processor,
)
from ragauge.cost.trace import indexing_s, online, stage_seconds
from ragauge.cost.trace import seconds as call_seconds
from ragauge.engines.batching import BatchScheduler
from ragauge.engines.lm import LM
from ragauge.engines.tuning import weight_read
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.progress import bar
from ragauge.measure import timing
from ragauge.measure.gpu_load import GpuWatch, watch
from ragauge.measure.protocols import cold
from ragauge.measure.timing import Bench
from ragauge.methods.base.grounding import Finding
from ragauge.methods.base.method import Method, State
from ragauge.methods.base.states import effective_state, in_state, usable_state
from ragauge.methods.naive import Naive
from ragauge.methods.prompts import Prompt
from ragauge.results.times import (
    STATE_WORDS,
    DocumentTrial,
    DocumentTrials,
    EvidenceTrial,
    EvidenceTrials,
    LatencyTimes,
    SpeedupGap,
    Spread,
    StateTimes,
    Trial,
    TrialLoad,
)
from ragauge.text import aligned

CACHE_STATE = "what was read before the question is in memory; the rest of the prompt and the response are timed"
MAX_DISTURBED = 0.1  # part of the trials that may stay disturbed after their retries
RETRIES = 3  # of one disturbed trial, and at least of all
RETRIED = 0.25  # of the trials: a machine that stays busy does not stretch the run
TIMES = ("first_token_s", "per_token_s", "total_s")
Timed = tuple[str, State]
"""A variant's name, and the state in which it is timed."""


def measure_latency(
    variants: Mapping[str, Method],
    bench: Bench,
    settings: LatencySettings,
    *,
    machine: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> LatencyTimes:
    """Time the variants with every response length of the protocol.

    Args:
        machine: what `cost.machine.measure` returned; None, or of another processor: measured here.
        folder: on its disk documents are stored during the measurement; None: they are not.

    Returns: the times of the first response length, with those of the others.
    """
    device = bench.lm.device.type
    here = processor(device)
    if machine is None or machine.get("processor", here) != here:  # of another node of a cluster
        machine = measure(device=device, allow_load=settings.allow_load, weight_read=weight_read)
    # a GPU computes documents faster than a disk stores them
    on_disk = "disk" in settings.states or device == "cpu"
    disk = folder if on_disk else None
    others = [
        settings.model_copy(update={"new_tokens": n, "states": settings.timed_states})
        for n in settings.all_new_tokens[1:]
    ]
    result, *further = run(variants, bench, [settings, *others], machine, seed=seed, disk=disk)
    return result.model_copy(update={"other_lengths": further})


def run(
    variants: Mapping[str, Method],
    bench: Bench,
    lengths: Sequence[LatencySettings],
    machine: Mapping[str, Any],
    *,
    seed: int = 0,
    disk: Path | None = None,
) -> list[LatencyTimes]:
    """Time every method variant in each of its states on the prompts, with responses of
    `new_tokens` tokens, in which alone `lengths` differ.

    The trials are divided over the prompts of `bench`. One prompt's prepared states are in memory
    at a time, for all lengths; every method that looks for evidence has as many trials on its
    batch, of the first length. With a `disk`, variants that read the same documents compute them
    once between them; their keys and values are the same bits. With the state `disk`, what a method
    prepares is also timed as it comes from there. `disk` is a folder on it.

    Returns: the times of each length; `gap` explains why measured speedups over the first variant of the method
        naive are not the theoretical ones. Where other processes used the machine, `load.busy` says how
        and all trials count, or `refused` says so, and `summary` and `gap` are empty.

    Raises UserError: no prompts, more threads than cores, or a response that the context cuts
    short.
    """
    if not bench.prompts:
        raise UserError("the latency protocol needs at least one prompt")
    threads = torch.get_num_threads()
    cores = psutil.cpu_count() or 1
    if threads > cores:
        raise UserError(
            f"threads: torch has {threads} threads on {cores} cores; use {cores} or fewer"
        )
    settings = lengths[0]
    able, unsupported = timing.supported(variants, bench.lm)
    one_document = all(len(prompt.documents) == 1 for prompt in bench.prompts)
    usable = {name: usable_state(method, one_document) for name, method in able.items()}
    timed_methods = {
        (name, effective_state(usable[name], state)): method
        for name, method in able.items()
        for state in settings.timed_states
    }
    trials = settings.trials
    count = len(bench.prompts)
    shares = [trials // count + (i < trials % count) for i in range(count)]
    finding = (
        {name: method for name, method in able.items() if isinstance(method, Finding)}
        if bench.batch
        else {}
    )
    trials_of_lengths = trials * (len(lengths) * len(timed_methods) + len(finding))
    with (
        bar(f"timing on {bench.dataset}", "trial", trials_of_lengths) as progress,
        _quiet_collector(),
    ):
        timed = [
            _Trials(
                {key: in_state(method, key[1]) for key, method in timed_methods.items()},
                bench.lm,
                one,
                machine,
                random.Random(seed),
                disk,
                progress,
            )
            for one in lengths
        ]
        for index, (prompt, share) in enumerate(zip(bench.prompts, shares, strict=True)):
            if share:
                states = timed[0].prepared(prompt)
                for of_length in timed:
                    of_length.preparations = timed[0].preparations
                    of_length.time_prompt(index, prompt, states, share)
                del states  # memory for what is prepared anew
                timed[0].time_documents(index, prompt)
        timed[0].time_batch(finding, bench.batch)
    naive = next((name for name, method in variants.items() if isinstance(method, Naive)), None)
    return [of_length.result(bench, usable, naive, seed, unsupported) for of_length in timed]


def summarise(rows: Sequence[Trial]) -> dict[str, dict[str, Spread]]:
    """Median, quartiles and number of each variant's times."""
    return {
        name: {
            time_: spread([getattr(row, time_) for row in rows if row.variant == name])
            for time_ in TIMES
        }
        for name in dict.fromkeys(row.variant for row in rows)
    }


def gaps(
    stages: Mapping[str, gap.Stages], rows: Sequence[Trial], naive: str | None
) -> dict[str, SpeedupGap]:
    """Why each variant's measured speedup over naive is not the theoretical one (`cost.gap`), on
    the first prompt.
    """
    first = [row for row in rows if row.prompt == 0]
    total_s = {name: times["total_s"].median or 0.0 for name, times in summarise(first).items()}
    if naive not in total_s:
        return {}
    return {
        name: SpeedupGap(**gap.explain(stages[name], s, stages[naive], total_s[naive]))
        for name, s in total_s.items()
        if name != naive
    }


def table(times: LatencyTimes) -> str:
    """A line per variant and state, with the parts of its gap."""
    parts = [f"{times.protocol.new_tokens} generated tokens"]
    for state, there in times.states.items():
        parts += ["", f"before the question: {STATE_WORDS[state]}", _table(there)]
    return "\n".join(parts)


def _table(there: StateTimes) -> str:
    lines = [
        [
            "variant",
            "first token s",
            "total s",
            "roofline s",
            "theory",
            "roofline",
            "measured",
            "gap, by part",
        ]
    ]
    for name, summary in there.summary.items():
        medians = [summary[key].median or 0.0 for key in ("first_token_s", "total_s")]
        seconds = (*medians, gap.floor(there.stages[name]))
        cells = ["", "", "", ""]
        if beyond := there.gap.get(name):
            speedups = (
                beyond.theoretical_speedup,
                beyond.roofline_speedup,
                beyond.measured_speedup,
            )
            shares = gap.shares(beyond.stages, beyond.between_calls_s, beyond.gap_s)
            parts = [f"{part} {share:.0%}" for part, share in shares.items()]
            if beyond.gap_s and (decode := beyond.stages.get(gap.UNCOUNTED)):
                parts.append(f"(memory-bound decode {decode['memory_s'] / beyond.gap_s:.0%})")
            cells = [*(f"{speedup:.2f}x" for speedup in speedups), ", ".join(parts)]
        lines.append([name, *(f"{s:.4f}" for s in seconds), *cells])
    return aligned(lines)


def _timed_stages(
    stages: Mapping[str, gap.Stages], rows: Sequence[Trial]
) -> dict[str, dict[str, dict[str, float]]]:
    """The stages with the median seconds of the first prompt's trials in place of the warm-up's."""
    first = [row for row in rows if row.prompt == 0]
    timed: dict[str, dict[str, dict[str, float]]] = {}
    for name, warm in stages.items():
        trials = [row.stages for row in first if row.variant == name]
        for stage, values in warm.items():
            clocked = [trial[stage] for trial in trials if stage in trial]
            seconds = statistics.median(clocked) if clocked else values["seconds"]
            timed.setdefault(name, {})[stage] = {**values, "seconds": seconds}
    return timed


def spread(values: Sequence[float | None]) -> Spread:
    """The median and the quartiles of the values that are there."""
    known = [v for v in values if v is not None]
    if not known:
        return Spread(n=0)
    q1, median, q3 = map(float, np.quantile(known, (0.25, 0.5, 0.75)))
    return Spread(median=median, q1=q1, q3=q3, n=len(known))


@dataclass
class _Trials:
    variants: Mapping[Timed, Method]
    engine: LM
    settings: LatencySettings
    machine: Mapping[str, Any]
    order: random.Random
    disk: Path | None  # a folder on it
    progress: Any  # a bar of trials, moved between them, never in one
    retried: int = 0
    # of all undisturbed trials together: what was too short to see in each
    load: Load = field(default_factory=Load)
    rows: list[Trial] = field(default_factory=list)
    stages: dict[Timed, dict[str, dict[str, float]]] = field(default_factory=dict)
    preparations: dict[Timed, JsonObject] = field(default_factory=dict)  # of the prompt
    documents: list[DocumentTrial] = field(default_factory=list)
    batches: list[EvidenceTrial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = timing.fixed_length(self.settings.new_tokens)
        self.retries_left = max(RETRIES, int(RETRIED * len(self.variants) * self.settings.trials))
        self.gpu = watch(str(self.engine.device))

    def prepared(self, prompt: Prompt) -> dict[Timed, Any]:
        """What each variant has read of a prompt before the question."""
        self.progress.set_postfix_str("preparing documents")
        with (
            cold.storing_documents(self.engine, self.disk, cold.UNBOUNDED)
            if self.disk
            else nullcontext()
        ):
            states = {key: self._prepared(key, prompt) for key in self.variants}
        self.progress.set_postfix_str("")
        return states

    def time_prompt(
        self, index: int, prompt: Prompt, states: Mapping[Timed, Any], trials: int
    ) -> None:
        """Warm every variant up on a prompt, and time it `trials` times in seeded random orders."""
        costs = {key: self._warm_up(key, states[key], prompt) for key in self.variants}
        for _ in range(trials):
            gc.collect()
            self.gpu.look()
            keys = list(self.variants)
            self.order.shuffle(keys)
            for key in keys:
                times = self._undisturbed(partial(self._trial, key, states[key], prompt))
                number = sum((row.variant, row.state) == key for row in self.rows)
                facts = {"variant": key[0], "state": key[1], "trial": number, "prompt": index}
                self.rows.append(Trial(**facts, **times, **costs[key], **self.preparations[key]))
        self.gpu.look()

    def time_documents(self, index: int, prompt: Prompt) -> None:
        """Time a prompt's documents as they come from the disk, where the protocol has that state;
        once, since computing takes seconds.
        """
        if not self.disk or "disk" not in self.settings.states:
            return
        for (name, state), method in self.variants.items():
            if method.usable_state() != state:  # it has nothing ready
                continue
            gc.collect()
            prepare = partial(method.prepare, self.engine, prompt)
            documents = cold.time_documents(name, index, prepare, self.engine, self.disk)
            self.documents += [documents] if documents else []

    def _prepared(self, key: Timed, prompt: Prompt) -> Any:
        """What a variant has read before the question; notes its seconds (of computing, also where
        it comes from the disk) and the bytes of keys and values that stay.
        """
        before = self.engine.cache_bytes
        with self.engine.tracing() as trace:
            state = self.variants[key].prepare(self.engine, prompt)
        stays = self.engine.cache_bytes - before
        self.preparations[key] = {
            "preparation_s": call_seconds(trace) - indexing_s(trace),
            "preparation_bytes": stays,
        }
        return state

    def state_times(
        self, keys: Collection[Timed], naive: str | None, all_count: bool, is_shown: bool
    ) -> StateTimes:
        """The variants in one state, whose trials have these keys; disturbed trials are left out
        unless `all_count`.
        """
        rows = [
            row
            for row in self.rows
            if (row.variant, row.state) in keys and (all_count or not row.disturbed)
        ]
        stages = {key[0]: warm for key, warm in self.stages.items() if key in keys}
        stages = _timed_stages(stages, rows)
        shown = rows if is_shown else []
        return StateTimes(stages=stages, gap=gaps(stages, shown, naive), summary=summarise(shown))

    def time_batch(self, variants: Mapping[str, Finding], prompts: Sequence[Prompt]) -> None:
        """Time finding the evidence of all prompts side by side, in seeded random orders. What is
        prepared of them is prepared for each trial, untimed: that of all variants would not fit in
        memory.
        """
        names = list(variants)
        for number in range(-self.settings.warmup, self.settings.trials):
            self.order.shuffle(names)
            for name in names:
                states = [variants[name].prepare(self.engine, prompt) for prompt in prompts]
                finds = [
                    partial(variants[name].find, state=s, prompt=p)
                    for s, p in zip(states, prompts, strict=True)
                ]
                self.engine.synchronize()
                gc.collect()
                trial = partial(self._side_by_side, finds)
                if number < 0:
                    trial()
                    continue
                times = self._undisturbed(trial)
                self.batches.append(EvidenceTrial(variant=name, trial=number, **times))

    def _side_by_side(self, finds: Sequence[Callable[[Any], Any]]) -> tuple[JsonObject, Load]:
        """The part of each search in the time of all, and what other processes did meanwhile."""
        with competing_load() as load, BatchScheduler(self.engine, len(finds)) as scheduler:
            started = time.perf_counter()
            for task in scheduler.run(finds):
                task.result()
            self.engine.synchronize()
            seconds = time.perf_counter() - started
        return {"evidence_s": seconds / len(finds)}, load

    def _undisturbed(self, trial: Callable[[], tuple[JsonObject, Load]]) -> JsonObject:
        """The times of a trial; of another one, up to RETRIES times, while other processes keep the
        machine busy.
        """
        times, load = trial()
        retries = min(RETRIES, self.retries_left)
        while load.share > MAX_LOAD and retries:
            retries -= 1
            self.retries_left -= 1
            self.retried += 1
            time.sleep(PAUSE_S)
            times, load = trial()
        disturbed = load.share > MAX_LOAD
        self.load += Load() if disturbed else load
        self.progress.update()
        return {"load_share": load.share, "disturbed": disturbed, **times}

    def _trial(self, key: Timed, state: Any, prompt: Prompt) -> tuple[JsonObject, Load]:
        """The times of one answer and of its stages, and what other processes did meanwhile."""
        self.engine.synchronize()
        with competing_load() as load, self.engine.tracing() as trace:
            started = time.perf_counter()
            self._answer(key, state, prompt)
            self.engine.synchronize()
            ended = time.perf_counter()
        assert self.engine.first_token_at is not None
        started += indexing_s(trace)
        total_s = ended - started
        first_token_s = self.engine.first_token_at - started
        further = self.limits.max_new_tokens - 1
        per_token_s = (total_s - first_token_s) / further if further else None
        times = {"first_token_s": first_token_s, "per_token_s": per_token_s, "total_s": total_s}
        return {**times, "stages": stage_seconds(trace)}, load

    def _warm_up(self, key: Timed, state: Any, prompt: Prompt) -> JsonObject:
        """Answer untimed; the costs of the last answer, whose shapes the timed ones share. The
        stages' seconds and floors are noted for the first prompt.
        """
        for _ in range(self.settings.warmup - 1):
            self._answer(key, state, prompt)
        with self.engine.tracing() as trace:
            self._answer(key, state, prompt)
        stages = gap.stages(trace, self.engine.shape, self.engine.precision, self.machine)
        self.stages.setdefault(key, stages)
        return {
            "flop": flop(online(trace), self.engine.shape),
            "compute_cycles": critical_path(trace, self.engine.shape),
            "roofline_s": sum(stage["roofline_s"] for stage in stages.values()),
        }

    def _answer(self, key: Timed, state: Any, prompt: Prompt) -> None:
        answer = self.variants[key].answer(self.engine, state, prompt, self.limits)
        timing.check_length(answer, self.limits, self.engine, key[0])

    def result(
        self,
        bench: Bench,
        usable: dict[str, State],
        naive: str | None,
        seed: int,
        unsupported: Mapping[str, str],
    ) -> LatencyTimes:
        """The times of all prompts."""
        settings = self.settings
        busy = disturbance(self.rows, self.load, self.machine.get("load_share", 0.0), self.gpu)
        refused = None if settings.allow_load else busy
        states = {
            state: self.state_times(
                {(name, effective_state(own, state)) for name, own in usable.items()},
                naive,
                busy is not None,
                is_shown=not refused,
            )
            for state in settings.timed_states
        }
        on_disk = "disk" in settings.states
        documents = DocumentTrials(state=cold.STATE, rows=self.documents) if on_disk else None
        batches = EvidenceTrials(questions=len(bench.batch), rows=self.batches)
        graphs = cuda_graphs(bench.lm)
        return LatencyTimes(
            **bench.result(
                settings, seed, unsupported, cache_state=CACHE_STATE, cuda_graphs=graphs
            ),
            machine=dict(self.machine),
            load=TrialLoad(
                share=self.load.share,
                others_cpu_s=self.load.others_cpu_s,
                seconds=self.load.seconds,
                disturbed=sum(row.disturbed for row in self.rows),
                retried=self.retried,
                allowed_share=MAX_LOAD,
                gpu=self.gpu.state(),
                busy=busy,
            ),
            refused=refused,
            usable=usable,
            states=states,
            rows=self.rows,
            documents=documents,
            evidence_batches=batches if self.batches else None,
        )


def disturbance(
    rows: Sequence[Trial], load: Load, machine_share: float, gpu: GpuWatch
) -> str | None:
    """Say what disturbed the trials, so that they are not to be published; None if the machine
    was quiet enough.
    """
    disturbed = [row.load_share for row in rows if row.disturbed]
    if len(disturbed) > MAX_DISTURBED * len(rows):
        share = statistics.median(disturbed)
        return f"other processes took {share:.0%} of the machine's CPU time in {len(disturbed)} of {len(rows)} trials"
    if load.share <= MAX_LOAD < machine_share:
        return f"other processes took {machine_share:.0%} of its CPU time while the machine's rates were measured"
    return timing.disturbance(load, gpu)


def cuda_graphs(engine: LM) -> str | None:
    """Whether tokens were decoded by CUDA graphs: "on", or "off" with the reason; None on a device
    without them.
    """
    steps = getattr(engine, "steps", None)
    if steps is None:
        return None
    return f"off: {steps.fallback}" if steps.fallback else "on"


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
