"""What was measured of systems over sequences of text: perplexity, latency, and differences between
two of them.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median, quantiles

from ragauge.assets import resolver
from ragauge.cost import overlap
from ragauge.cost.machine import MAX_LOAD
from ragauge.results.cells import Cell, Cells, Measure, join, noted, paired, with_interval_note
from ragauge.results.pipelines import Likelihoods, PipelineRun, SequenceKey, Task
from ragauge.results.provenance import machine
from ragauge.results.stats import mean_interval, median_ratio_interval, pooled
from ragauge.results.systems import System, Systems

PAPER_TOKENS = 1024  # of PipeRAG's texts at most
AGAINST_NONE = "minus_no_retrieval_nats"
AGAINST_RANDOM = "retrieved_minus_random_nats"


def shared_keys(systems: Systems) -> set[SequenceKey]:
    """Return the sequences that all of the scored systems have in common: what their perplexities
    can be compared on.
    """
    keys = [set(s.scored.nll) for s in systems if s.scored is not None and s.scored.nll]
    return set.intersection(*keys) if keys else set()


def perplexity(system: System, keys: set[SequenceKey]) -> Measure:
    """exp of the mean negative log-likelihood of a token, pooled over the sequences of these keys, or
    all where there are none; the interval resamples sequences.
    """
    if system.scored is None:
        return Measure(reason=_not_run(system, "perplexity"))
    by_text = system.scored.nll
    shared = {key: value for key, value in by_text.items() if not keys or key in keys}
    if not shared:
        return Measure(reason=_failed(system.scored) or "no sequence has a likelihood")
    nll = pooled(list(shared.values()), [scored for *_, scored in shared])
    note = f"on the {len(nll)} sequences that all systems share" if len(nll) < len(by_text) else ""
    note = note if keys else "the systems share no sequence"
    is_encoded_anew = system.scored.settings.encoding == "every_window"
    encoded = "neighbours encoded in every window" if is_encoded_anew else ""
    others = system.unshown(system.scored)
    note = join(note, encoded, _failed(system.scored), _of_proxy(system), others)
    return with_interval_note(Measure(*perplexity_of(nll, system.runs.seed), len(nll), note=note))


def perplexity_of(nll: Sequence[float], seed: int = 0) -> tuple[float, float | None, float | None]:
    """exp of the mean of likelihoods in nats, and the ends of its interval, if that is known."""
    low, high = (None if end is None else math.exp(end) for end in mean_interval(nll, seed))
    return math.exp(sum(nll) / len(nll)), low, high


def is_scored_alike(system: System) -> bool:
    """Return whether a perplexity is of the paper's RETRO, and of every label of texts cut at 1,024
    tokens.
    """
    pipeline = system.scored or system.members[0]
    settings = pipeline.settings
    source = pipeline.specification.source or system.runs.source(system.model)
    scored = [record for record in pipeline.records if record.nll is not None]
    has_all_labels = all(record.scored == record.tokens - 1 for record in scored)
    return (
        has_all_labels
        and settings.tokens == PAPER_TOKENS
        and settings.scoring == "published"
        and settings.mode == "retro"
        and resolver.is_retro(source)
    )


def quality(group: Systems, system: System, shared: set[SequenceKey]) -> Cells:
    """Yield the cells of a system's perplexity, and of its paired difference from no retrieval on
    the same sequences.
    """
    yield Cell(system.keys, "perplexity", perplexity(system, shared))
    none = next(
        (s.scored for s in group if s.kind == "no_retrieval" and s.scored is not None), None
    )
    if system.scored is not None and none is not None and system.kind != "no_retrieval":
        yield Cell(system.keys, AGAINST_NONE, difference(system.scored, none))


def latency(system: System) -> Measure:
    """Median seconds of a sequence; the interval is the quartiles of all trials."""
    return _of_trials(system, lambda p: p.trials_s)


def waited(system: System) -> Measure:
    """Median seconds for which the generation of a sequence stood still."""
    return _of_trials(system, lambda p: [overlap.waited_s(trace) for trace in p.traces])


def ideal_overlap(system: System, *, retrieval: float = 1.0, generation: float = 1.0) -> Measure:
    """Median seconds of a sequence if its traced parts overlapped ideally, each so many times
    faster.
    """
    return _of_trials(
        system, lambda p: [overlap.ideal_s(trace, retrieval, generation) for trace in p.traces]
    )


def speedup(base: System | None, system: System) -> Measure:
    """Return how many times the base's median seconds are the system's; the interval resamples the
    trials of both.
    """
    if system.timed is None:
        return Measure(reason=_not_run(system, "generate"))
    if base is None or base.timed is None:
        return Measure(reason="not run: the other system was not timed")
    a = base.timed.trials_s
    b = system.timed.trials_s
    if not a or not b:
        return Measure(reason="no trial finished")
    sides = (base.timed, system.timed)
    lengths = [str(p.settings.tokens) for p in sides]
    machines = [machine(p.meta.get("provenance") or {}, p.specification.device) for p in sides]
    note = join(
        f"sequences of {' and '.join(lengths)} tokens" if len({*lengths}) > 1 else "",
        f"timed on two machines: {' and '.join(machines)}" if len({*machines}) > 1 else "",
    )
    interval = median_ratio_interval(a, b, system.runs.seed)
    return with_interval_note(
        Measure(median(a) / median(b), *interval, min(len(a), len(b)), note=note)
    )


def difference(better: PipelineRun | None, worse: PipelineRun | None) -> Measure:
    """Paired difference in nats a token, over the sequences that both scored; below zero the first
    is better.
    """
    if better is None or worse is None:
        return Measure(reason="not run: one of the two was not scored")
    a, b = shared_nll(better.nll, worse.nll)
    if len(a) < 2:
        return Measure(n=len(a), reason="fewer than two sequences in common")
    return paired(a, b, better.runs.seed)


def shared_nll(*scored: Likelihoods) -> list[list[float]]:
    """Return the likelihoods of each on the sequences that all scored, pooled over tokens."""
    shared = [key for key in scored[0] if all(key in nll for nll in scored)]
    tokens = [counted for *_, counted in shared]
    return [pooled([nll[key] for key in shared], tokens) if shared else [] for nll in scored]


def control(group: Systems, system: System) -> Cells:
    """Yield the paired difference of a system that retrieves from random neighbours of its
    database, read alike.
    """
    if system.scored is None or system.kind in ("no_retrieval", "random"):
        return
    read = (system.database, system.options)
    controls = [
        s
        for s in group
        if s.kind == "random" and s.scored is not None and (s.database, s.options) == read
    ]
    random = min(controls, key=lambda s: abs(s.interval - system.interval), default=None)
    if random is None:
        measure = Measure(reason="not run: no pipeline with random neighbours and these options")
    else:
        measure = difference(system.scored, random.scored)
        interval = (
            f"random neighbours every {random.interval} tokens"
            if random.interval != system.interval
            else ""
        )
        verdict = "not shown: the interval of retrieved minus random neighbours includes zero"
        if (measure.high or 0) < 0:
            verdict = "retrieved neighbours beat random ones: the interval lies below zero"
        measure = noted(measure, verdict if measure.value is not None else "", interval)
    yield Cell(system.keys, AGAINST_RANDOM, measure)


def _of_trials(system: System, values: Callable[[PipelineRun], Sequence[float]]) -> Measure:
    """Median and quartiles of values of the timed pipeline."""
    if system.timed is None:
        return Measure(reason=_not_run(system, "generate"))
    numbers = values(system.timed)
    failed = _failed(system.timed)
    if not numbers:
        return Measure(reason=failed or "no trial finished")
    low, _, high = (
        quantiles(numbers, n=4, method="inclusive") if len(numbers) > 1 else (None, None, None)
    )
    share = system.timed.load_share or 0.0
    busy = f"other processes took {share:.0%} of the machine" if share > MAX_LOAD else ""
    return Measure(
        median(numbers),
        low,
        high,
        len(numbers),
        note=join(failed, busy, system.unshown(system.timed)),
    )


def _not_run(system: System, task: Task) -> str:
    """Why a system has no number from pipelines of that task."""
    if request := system.requested(task):
        return f"not run: {request.missing} for pipeline {request.name}"
    return f"not run: no pipeline of this experiment measures its {'latency' if task == 'generate' else task}"


def _failed(pipeline: PipelineRun) -> str:
    failed = pipeline.failed
    return (
        f"{len(failed)} of {len(pipeline.all_records)} sequences failed: {failed[0].reason}"
        if failed
        else ""
    )


def _of_proxy(system: System) -> str:
    other = system.proxy
    if other is None:
        return ""
    label = other.index.label if other.index else ""
    if not system.hides_search:
        return f"perplexity with index {label}"
    where = "" if other.index == system.index else f" and index {label}"
    chosen = f"hide chose {median(system.chosen_nprobes):g} in the middle"
    return f"perplexity at nprobe {other.fixed_nprobe}{where}; {chosen}"
