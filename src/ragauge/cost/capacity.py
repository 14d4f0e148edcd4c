"""What building a chunk database of any size takes, from measured builds of small ones.

`benchmarks/scale.py` builds a database from one, two and four times a corpus and writes a line for each job. Of these

    seconds of a job = fixed + a_load * load of the job
    memory of a job  = the most seen; of `mark`: fixed + a_text * held-out texts of the database
    bytes of a job   = fixed + a_chunk * chunks of the job

are fitted, a step at a time. A job's load is its chunks; that of `mark`, which looks the signatures of its documents
up among those of all held-out texts, is its documents and these texts. Steps by shard (`chunks`, `mark`, `embed`,
`add`) are as many jobs as there are shards, on one core each; `gather`, `train` and `merge` are one job over
everything. `chunks`, `embed` and `add` work in blocks, `gather` and `merge` on files, so that their memory does not
follow the chunks. An index of more lists than the measured one compares a vector with more centroids, when vectors are
added and in every iteration of k-means:

    seconds more = 2 * vectors * dim * (lists - measured lists) / matrix rate of one core

Training was measured on one number of vectors. Its seconds grow in proportion to them, its memory by 4 * dim bytes
each. An index without lists (HNSW) trains nothing and holds a shard in memory while it adds it, so that the memory of
`add` is fitted to the chunks; its seconds grow slightly faster than the fit says, with the logarithm of the shard.

The fit is linear in the load, so a plan says how many times larger its jobs are than the largest measured one.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from ragauge.errors import UserError

BY_SHARD = ("chunks", "mark", "embed", "add")
STEPS = ("chunks", "mark", "gather", "embed", "train", "add", "merge")  # in the order of a build
GB = 1e9


@dataclass(frozen=True)
class BuildJob:
    """One job of a measured build."""

    corpus: int  # how many times the smallest corpus
    shards: int  # of the build
    step: str
    chunks: int  # that the job worked on
    documents: int
    held_out: int  # texts that all shards hold out
    seconds: float
    cpu_s: float
    peak_mb: float  # resident memory
    disk_bytes: int  # that it left

    @property
    def load(self) -> int:
        """What its seconds follow: chunks, or signatures."""
        return self.documents + self.held_out if self.step == "mark" else self.chunks


@dataclass(frozen=True)
class Line:
    """A quantity that is linear in chunks: `fixed + slope * chunks`, neither below 0."""

    fixed: float
    slope: float

    @classmethod
    def through(cls, chunks: Sequence[float], values: Sequence[float]) -> Line:
        """Least squares over the jobs; a constant, their largest value, where all have one size or it falls."""
        if len(set(chunks)) < 2:
            return cls(max(values), 0.0)
        slope, fixed = np.polyfit(chunks, values, 1)
        if slope <= 0:
            return cls(max(values), 0.0)
        if fixed < 0:
            return cls(0.0, float(np.dot(chunks, values) / np.dot(chunks, chunks)))
        return cls(float(fixed), float(slope))

    def __call__(self, chunks: float) -> float:
        return self.fixed + self.slope * chunks


@dataclass(frozen=True)
class StepFit:
    """What the jobs of one step take."""

    seconds: Line
    memory_mb: Line
    disk_bytes: Line
    largest: int  # load of the largest measured job
    documents: float  # a chunk


@dataclass(frozen=True)
class Measured:
    """The index that was measured, and the machine."""

    nlist: int | None  # None: an index without lists, whose shards are built in memory
    iterations: int
    dim: int
    flop_per_s: float  # fp32 matrix products on one core


@dataclass(frozen=True)
class Target:
    """What is to be built, and on what."""

    chunks: float
    held_out: float  # texts
    shard_chunks: float
    nodes: int
    cores: int  # a node
    nlist: int
    train_vectors: int

    @property
    def shards(self) -> int:
        """Jobs of a step by shard."""
        return math.ceil(self.chunks / self.shard_chunks)


@dataclass(frozen=True)
class BuildStep:
    """One step of a build."""

    step: str
    jobs: int
    job_hours: float  # of one job, on one core
    hours: float  # of the step, on all nodes
    job_gb: float  # memory
    node_gb: float  # memory of a node with a job on every core
    disk_gb: float  # that all jobs leave
    times_measured: float  # the job's load over the largest that was measured


def read(path: Path) -> list[BuildJob]:
    """The jobs of a table of `benchmarks/scale.py`; raises UserError naming the first invalid line."""
    kinds = {field.name: {"int": int, "float": float, "str": str}[str(field.type)] for field in fields(BuildJob)}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    jobs = []
    for number, row in enumerate(rows, start=2):
        try:
            jobs.append(BuildJob(**{name: kind(row[name]) for name, kind in kinds.items()}))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}:{number}: not a job of a build: {error}") from error
        if jobs[-1].step not in STEPS:
            raise UserError(f"{path}:{number}: unknown step {jobs[-1].step!r}; known: {', '.join(STEPS)}")
    if missing := sorted(set(STEPS) - {job.step for job in jobs}):
        raise UserError(f"{path}: no job of {', '.join(missing)}")
    return jobs


def rates(jobs: Iterable[BuildJob], in_memory: bool = False) -> dict[str, StepFit]:
    """The fit of every step with measured jobs.

    Args:
        in_memory: the index holds a shard in memory while it adds it.
    """
    by_step: dict[str, list[BuildJob]] = {}
    for job in jobs:
        by_step.setdefault(job.step, []).append(job)
    return {step: _rate(by_step[step], in_memory and step == "add") for step in STEPS if step in by_step}


def _rate(jobs: Sequence[BuildJob], in_memory: bool) -> StepFit:
    chunks = [job.chunks for job in jobs]
    return StepFit(
        Line.through([job.load for job in jobs], [job.seconds for job in jobs]),
        _memory(jobs, in_memory),
        Line.through(chunks, [job.disk_bytes for job in jobs]),
        max(job.load for job in jobs),
        sum(job.documents for job in jobs) / sum(chunks),
    )


def _memory(jobs: Sequence[BuildJob], in_memory: bool) -> Line:
    """Megabytes: of `mark` by held-out texts, of what is built in memory by chunks, else constant."""
    peaks = [job.peak_mb for job in jobs]
    if jobs[0].step == "mark":
        return Line.through([job.held_out for job in jobs], peaks)
    return Line.through([job.chunks for job in jobs], peaks) if in_memory else Line(max(peaks), 0.0)


def plan(fitted: dict[str, StepFit], measured: Measured, target: Target) -> list[BuildStep]:
    """The steps of a build, in order."""
    return [_plan(step, fitted[step], measured, target) for step in STEPS]


def _plan(step: str, rate: StepFit, measured: Measured, target: Target) -> BuildStep:
    jobs = target.shards if step in BY_SHARD else 1
    vectors = min(target.train_vectors, target.chunks) if step == "train" else target.chunks / jobs
    load = vectors * rate.documents + target.held_out if step == "mark" else vectors
    seconds, memory = rate.seconds(load), rate.memory_mb(target.held_out if step == "mark" else vectors) * 1e6 / GB
    if step == "train" and vectors > rate.largest and measured.nlist is not None:
        seconds *= vectors / rate.largest
        memory += 4 * measured.dim * (vectors - rate.largest) / GB
    job_h = (seconds + _more_lists(step, vectors, measured, target)) / 3600
    at_once = min(jobs, target.cores)
    return BuildStep(
        step,
        jobs,
        job_h,
        math.ceil(jobs / (target.nodes * target.cores)) * job_h,
        memory,
        at_once * memory,
        jobs * rate.disk_bytes(vectors) / GB,
        load / rate.largest,
    )


def _more_lists(step: str, vectors: float, measured: Measured, target: Target) -> float:
    """Seconds of one core for the centroids that the measured index did not have."""
    if measured.nlist is None:
        return 0.0
    passes = {"train": measured.iterations, "add": 1}.get(step, 0)
    return 2 * passes * vectors * measured.dim * max(0, target.nlist - measured.nlist) / measured.flop_per_s


def markdown(steps: Sequence[BuildStep], target: Target) -> str:
    """The plan as a table, with what the whole build takes below it."""
    head = ["step", "jobs", "hours a job", "hours in all", "GB a job", "GB a node", "GB on disk", "times measured"]
    rows = [_cells(step) for step in steps]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])
    hours, disk = sum(s.hours for s in steps), sum(s.disk_gb for s in steps)
    core_hours = sum(s.jobs * s.job_hours for s in steps)
    return (
        f"{target.chunks:,.0f} chunks in {target.shards:,} shards, {target.held_out:,.0f} texts held out, "
        f"{target.nodes:,} nodes of {target.cores} cores\n\n"
        f"{table}\n\n"
        f"In all {hours:,.1f} hours, {core_hours:,.0f} core hours, {disk:,.0f} GB on disk, "
        f"{max(s.node_gb for s in steps):,.0f} GB of memory a node.\n"
    )


def _cells(step: BuildStep) -> list[str]:
    small = (step.job_hours, step.hours, step.job_gb, step.node_gb)
    large = (step.disk_gb, step.times_measured)
    return [step.step, f"{step.jobs:,}", *(f"{value:,.2f}" for value in small), *(f"{value:,.0f}" for value in large)]
