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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
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
Prepared = tuple[Any, JsonObject]
"""What a variant has read of a prompt before the question, and what that took."""


def measure_latency(
    variants: Mapping[str, Method],
    bench: Bench,
    settings: LatencySettings,
    *,
    machine: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> LatencyTimes:
    """Time every variant in each of its states on the prompts, with every response length of the
    protocol.

    The trials are divided over the prompts of `bench`. One prompt's prepared states are in memory
    at a time, for all lengths; every method that looks for evidence has as many trials on its
    batch, of the first length. Variants that read the same documents compute them once between
    them, as far as a disk stores them; their keys and values are the same bits. With the state
    `disk`, what a method prepares is also timed as it comes from there.

    Args:
        machine: what `cost.machine.measure` returned; None, or of another processor: measured here.
        folder: on its disk documents are stored during the measurement; None: they are not.

    Returns: the times of the first response length, with those of the others; `gap` explains why
        measured speedups over the first variant of the method naive are not the theoretical ones.
        Where other processes used the machine, `load.busy` says how and all trials count, or
        `refused` says so, and `summary` and `gap` are empty.

    Raises:
        UserError: no prompts, more threads than cores, or a response that the context cuts short.
    """
    _check(bench)
    device = bench.engine.device.type
    here = processor(device)
    if machine is None or machine.get("processor", here) != here:  # of another node of a cluster
        machine = measure(device=device, allow_load=settings.allow_load, weight_read=weight_read)
    # a GPU computes documents faster than a disk stores them
    disk = folder if "disk" in settings.states or device == "cpu" else None
    able, unsupported = bench.supported(variants)
    one_document = all(len(prompt.documents) == 1 for prompt in bench.prompts)
    usable = {name: usable_state(method, one_document) for name, method in able.items()}
    timed: dict[Timed, Method] = {}
    for (name, method), state in product(able.items(), settings.timed_states):
        in_effect = effective_state(usable[name], state)
        timed[name, in_effect] = in_state(method, in_effect)
    finding = {
        name: method for name, method in able.items() if bench.batch and isinstance(method, Finding)
    }
    others = [
        settings.model_copy(update={"new_tokens": n, "states": settings.timed_states})
        for n in settings.all_new_tokens[1:]
    ]
    trials = settings.trials
    total = trials * ((1 + len(others)) * len(timed) + len(finding))
    with bar(f"timing on {bench.dataset}", "trial", total) as progress, _quiet_collector():
        first, *further = (
            _Trials(timed, bench.engine, one, machine, random.Random(seed), progress)
            for one in (settings, *others)
        )
        for index, prompt in enumerate(bench.prompts):
            share = len(range(index, trials, len(bench.prompts)))
            if share:
                progress.set_postfix_str("preparing documents")
                states = _prepared(timed, bench.engine, prompt, disk)
                progress.set_postfix_str("")
                for of_length in (first, *further):
                    of_length.time_prompt(index, prompt, states, share)
                del states  # memory for what is prepared anew
                if disk and "disk" in settings.states:
                    first.time_documents(index, prompt, disk)
        first.time_batch(finding, bench.batch)
    naive = next((name for name, method in variants.items() if isinstance(method, Naive)), None)
    result, *rest = (
        of_length.result(bench, usable, naive, seed, unsupported) for of_length in (first, *further)
    )
    return result.model_copy(update={"other_lengths": rest})


def _check(bench: Bench) -> None:
    if not bench.prompts:
        raise UserError("the latency protocol needs at least one prompt")
    threads = torch.get_num_threads()
    cores = psutil.cpu_count() or 1
    if threads > cores:
        raise UserError(
            f"threads: torch has {threads} threads on {cores} cores; use {cores} or fewer"
        )


def _prepared(
    variants: Mapping[Timed, Method], lm: LM, prompt: Prompt, disk: Path | None
) -> dict[Timed, Prepared]:
    """What each variant has read of a prompt before the question, with the seconds of reading it
    (of computing, also where it comes from the disk) and the bytes of keys and values that stay.
    """
    prepared = {}
    with cold.storing_documents(lm, disk, cold.UNBOUNDED) if disk else nullcontext():
        for key, method in variants.items():
            before = lm.cache_bytes
            with lm.tracing() as trace:
                state = method.prepare(lm, prompt)
            facts = {
                "preparation_s": call_seconds(trace) - indexing_s(trace),
                "preparation_bytes": lm.cache_bytes - before,
            }
            prepared[key] = (state, facts)
    return prepared


def summarise(rows: Sequence[Trial]) -> dict[str, dict[str, Spread]]:
    """Median, quartiles and number of each variant's times."""
    return {
        name: {
            time_: spread([getattr(row, time_) for row in rows if row.variant == name])
            for time_ in TIMES
        }
        for name in dict.fromkeys(row.variant for row in rows)
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


def _state_times(
    rows: Sequence[Trial], warm: Mapping[str, gap.Stages], naive: str | None, is_shown: bool
) -> StateTimes:
    """The times of trials in one state, and why each variant's measured speedup over naive is not
    the theoretical one, on the first prompt. `warm` has the stages of each variant's warm-up.
    """
    first = [row for row in rows if row.prompt == 0]
    stages = {
        name: _with_medians(of_variant, [row.stages for row in first if row.variant == name])
        for name, of_variant in warm.items()
    }
    if not is_shown:
        return StateTimes(stages=stages, gap={}, summary={})
    total_s = {name: times["total_s"].median or 0.0 for name, times in summarise(first).items()}
    gaps = {
        name: SpeedupGap(**gap.explain(stages[name], s, stages[naive], total_s[naive]))
        for name, s in total_s.items()
        if naive in total_s and name != naive
    }
    return StateTimes(stages=stages, gap=gaps, summary=summarise(rows))


def _with_medians(
    stages: gap.Stages, trials: Sequence[Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The stages with the median seconds of trials."""
    timed = {}
    for stage, values in stages.items():
        seconds = [trial[stage] for trial in trials if stage in trial]
        timed[stage] = {**values, "seconds": statistics.median(seconds or [values["seconds"]])}
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
    """Trials with one length of a response."""

    variants: Mapping[Timed, Method]
    engine: LM
    settings: LatencySettings
    machine: Mapping[str, Any]
    order: random.Random
    progress: Any  # a bar of trials, moved between them, never in one
    retried: int = 0
    # of all undisturbed trials together: what was too short to see in each
    load: Load = field(default_factory=Load)
    rows: list[Trial] = field(default_factory=list)
    stages: dict[Timed, dict[str, dict[str, float]]] = field(default_factory=dict)
    documents: list[DocumentTrial] = field(default_factory=list)
    batches: list[EvidenceTrial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = timing.fixed_length(self.settings.new_tokens)
        self.max_retried = max(RETRIES, int(RETRIED * len(self.variants) * self.settings.trials))
        self.gpu = watch(str(self.engine.device))

    def time_prompt(
        self, index: int, prompt: Prompt, states: Mapping[Timed, Prepared], trials: int
    ) -> None:
        """Warm every variant up on a prompt, and time it `trials` times in seeded random orders."""
        costs = {key: self._warm_up(key, states[key][0], prompt) for key in self.variants}
        earlier = len(self.rows) // max(1, len(self.variants))
        for number in range(earlier, earlier + trials):
            gc.collect()
            self.gpu.look()
            keys = list(self.variants)
            self.order.shuffle(keys)
            for key in keys:
                state, preparation = states[key]
                times = self._undisturbed(partial(self._trial, key, state, prompt))
                facts = {"variant": key[0], "state": key[1], "trial": number, "prompt": index}
                self.rows.append(Trial(**facts, **times, **costs[key], **preparation))
        self.gpu.look()

    def time_documents(self, index: int, prompt: Prompt, disk: Path) -> None:
        """Time a prompt's documents as they come from the disk; once, since computing takes
        seconds.
        """
        for (name, state), method in self.variants.items():
            if method.usable_state() != state:  # it has nothing ready
                continue
            gc.collect()
            prepare = partial(method.prepare, self.engine, prompt)
            documents = cold.time_documents(name, index, prepare, self.engine, disk)
            self.documents += [documents] if documents else []

    def time_batch(self, variants: Mapping[str, Finding], prompts: Sequence[Prompt]) -> None:
        """Time finding the evidence of all prompts side by side, in seeded random orders. What is
        prepared of them is prepared for each trial, untimed: that of all variants would not fit in
        memory.
        """
        names = list(variants)
        for number in range(-self.settings.warmup, self.settings.trials):
            self.order.shuffle(names)
            for name in names:
                method = variants[name]
                finds = [
                    partial(method.find, state=method.prepare(self.engine, prompt), prompt=prompt)
                    for prompt in prompts
                ]
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
            found = timing.clocked(
                self.engine, lambda: [task.result() for task in scheduler.run(finds)]
            )
        return {"evidence_s": found.seconds / len(finds)}, load

    def _undisturbed(self, trial: Callable[[], tuple[JsonObject, Load]]) -> JsonObject:
        """The times of a trial; of another one, up to RETRIES times, while other processes keep the
        machine busy.
        """
        times, load = trial()
        for _ in range(min(RETRIES, self.max_retried - self.retried)):
            if load.share <= MAX_LOAD:
                break
            self.retried += 1
            time.sleep(PAUSE_S)
            times, load = trial()
        disturbed = load.share > MAX_LOAD
        if not disturbed:
            self.load += load
        self.progress.update()
        return {"load_share": load.share, "disturbed": disturbed, **times}

    def _trial(self, key: Timed, state: Any, prompt: Prompt) -> tuple[JsonObject, Load]:
        """The times of one answer and of its stages, and what other processes did meanwhile."""
        with competing_load() as load:
            answered = timing.clocked(self.engine, partial(self._answer, key, state, prompt))
        assert self.engine.first_token_at is not None
        started = answered.start_s + indexing_s(answered.trace)
        total_s = answered.end_s - started
        first_token_s = self.engine.first_token_at - started
        further = self.limits.max_new_tokens - 1
        per_token_s = (total_s - first_token_s) / further if further else None
        times = {"first_token_s": first_token_s, "per_token_s": per_token_s, "total_s": total_s}
        return {**times, "stages": stage_seconds(answered.trace)}, load

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
        counted = [row for row in self.rows if busy or not row.disturbed]
        states = {}
        for state in settings.timed_states:
            keys = [(name, effective_state(own, state)) for name, own in usable.items()]
            rows = [row for row in counted if (row.variant, row.state) in keys]
            warm = {name: self.stages[name, there] for name, there in keys}
            states[state] = _state_times(rows, warm, naive, is_shown=not refused)
        on_disk = "disk" in settings.states
        documents = DocumentTrials(state=cold.STATE, rows=self.documents) if on_disk else None
        batches = EvidenceTrials(questions=len(bench.batch), rows=self.batches)
        graphs = cuda_graphs(bench.engine)
        return LatencyTimes(
            **bench.result(
                settings, seed, unsupported, cache_state=CACHE_STATE, cuda_graphs=graphs
            ),
            machine=dict(self.machine),
            load=TrialLoad(
                share=self.load.share,
                **asdict(self.load),
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
