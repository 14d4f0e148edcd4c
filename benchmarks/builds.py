"""Plan builds of chunk databases on many nodes, from measured builds of small ones.

    python benchmarks/builds.py CONFIG.yaml SCALE.csv [--nodes 32] [--cores 64] [--chunks N] [--json]

`benchmarks/scale.py` builds a database from one, two and four times a corpus and writes a line for
each job. Of these

    seconds of a job = fixed + slope * load of the job
    memory of a job  = the most seen; of `mark`: fixed + slope * held-out texts of the database
    bytes of a job   = fixed + slope * chunks of the job

are fitted, a step at a time (`docs/retrieval.md`). A job's load is its chunks; that of `mark`, which
looks the signatures of its documents up among those of all held-out texts, is its documents and
these texts.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np
import pandas as pd
from pydantic import BaseModel, model_validator

from _common import parse_options
from ragauge.config.loading import load
from ragauge.config.reading import checked
from ragauge.errors import SettingError, UserError
from ragauge.io.jsonl import read_object
from ragauge.pipelines.indexes.base.recipe import DEFAULT_TYPE
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.pipelines.retrieval.sizes import size, vectors

GB = 1e9
Step = Literal["chunks", "mark", "gather", "embed", "train", "add", "merge"]
STEPS: tuple[Step, ...] = get_args(Step)  # in the order of a build
# A job a shard, on one core each; the others are one job over everything.
BY_SHARD = ("chunks", "mark", "embed", "add")


class BuildJob(BaseModel):
    """One job of a measured build."""

    corpus: int  # how many times the smallest corpus
    shards: int  # of the build
    step: Step
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


class MeasuredIndex(BaseModel):
    """The index of measured builds, and the machine."""

    type: str = DEFAULT_TYPE
    nlist: int | None = None  # None: an index without lists, whose shards are built in memory
    iterations: int = 0
    dim: int
    flop_per_s: float  # float32 matrix products on one core

    @model_validator(mode="after")
    def _has_its_lists(self) -> Self:
        if self.type == DEFAULT_TYPE and self.nlist is None:
            raise SettingError("nlist", "is missing")
        return self


@dataclass(frozen=True)
class Line:
    """A quantity that is linear in a load: `fixed + slope * load`, neither below 0."""

    fixed: float
    slope: float

    @classmethod
    def through(cls, loads: Sequence[float], values: Sequence[float]) -> Line:
        """Fit by least squares; the largest value where all loads are equal or values fall."""
        slope, fixed = np.polyfit(loads, values, 1) if len(set(loads)) > 1 else (0.0, 0.0)
        if slope <= 0:
            return cls(max(values), 0.0)
        if fixed < 0:
            return cls(0.0, float(np.dot(loads, values) / np.dot(loads, loads)))
        return cls(float(fixed), float(slope))

    def __call__(self, load: float) -> float:
        return self.fixed + self.slope * load


@dataclass(frozen=True)
class BuildStep:
    """One step of a planned build."""

    step: str
    jobs: int
    job_hours: float  # of one job, on one core
    hours: float  # of the step, on all nodes
    job_gb: float  # memory
    node_gb: float  # memory of a node with a job on every core
    disk_gb: float  # that all jobs leave
    times_measured: float  # the job's load over the largest that was measured


class StepFit:
    """What the jobs of one step take, fitted to measured ones.

    Args:
        in_memory: the step holds in memory what it works on.
    """

    def __init__(self, jobs: Sequence[BuildJob], in_memory: bool = False) -> None:
        chunks = [job.chunks for job in jobs]
        peaks = [job.peak_mb for job in jobs]
        self.seconds = Line.through([job.load for job in jobs], [job.seconds for job in jobs])
        self.disk_bytes = Line.through(chunks, [job.disk_bytes for job in jobs])
        self.memory_mb = Line.through(chunks, peaks) if in_memory else Line(max(peaks), 0.0)
        if jobs[0].step == "mark":
            self.memory_mb = Line.through([job.held_out for job in jobs], peaks)
        self.largest = max(job.load for job in jobs)
        self.documents_per_chunk = sum(job.documents for job in jobs) / sum(chunks)


@dataclass(frozen=True)
class Builds:
    """Measured builds, from which those on so many nodes of so many cores are planned."""

    jobs: tuple[BuildJob, ...]
    index: MeasuredIndex
    nodes: int = 1
    cores: int = 1

    def fit(self, step: Step) -> StepFit:
        """The fit of one step."""
        in_memory = step == "add" and self.index.nlist is None
        return StepFit([job for job in self.jobs if job.step == step], in_memory)

    def plan(self, settings: DatabaseSettings, chunks: float, held_out: float) -> list[BuildStep]:
        """The steps of a database's build, then those of its indexes of the measured type."""
        steps = [self._step(step, step, settings.shards, chunks, held_out) for step in STEPS[:4]]
        for label, index in settings.indexes.items():
            stored = vectors(index, chunks, settings)
            lists = getattr(index, "nlist", 0)
            trained = min(stored, getattr(index, "train_vectors", stored))
            for step in STEPS[4:] if index.type == self.index.type else ():
                count = trained if step == "train" else stored
                steps.append(
                    self._step(
                        step, f"{step} {label}", index.shards or settings.shards, count, 0.0, lists
                    )
                )
        return steps

    def _step(
        self, step: Step, name: str, shards: int, chunks: float, held_out: float, nlist: int = 0
    ) -> BuildStep:
        """A step over so many chunks; training on more vectors takes longer in proportion."""
        fit = self.fit(step)
        jobs = shards if step in BY_SHARD else 1
        each = chunks / jobs
        load = each * fit.documents_per_chunk + held_out if step == "mark" else each
        beyond = (
            max(0.0, each - fit.largest)
            if step == "train" and self.index.nlist is not None
            else 0.0
        )
        seconds = fit.seconds(load) * (1 + beyond / fit.largest) + self._lists_s(step, each, nlist)
        memory_gb = (
            fit.memory_mb(held_out if step == "mark" else each) * 1e6 + 4 * self.index.dim * beyond
        ) / GB
        rounds = math.ceil(jobs / (self.nodes * self.cores))
        return BuildStep(
            name,
            jobs,
            seconds / 3600,
            rounds * seconds / 3600,
            memory_gb,
            min(jobs, self.cores) * memory_gb,
            jobs * fit.disk_bytes(each) / GB,
            load / fit.largest,
        )

    def _lists_s(self, step: Step, vectors: float, nlist: int) -> float:
        """Seconds to compare vectors with the centroids that the measured index did not have."""
        passes = {"train": self.index.iterations, "add": 1}.get(step, 0)
        more = max(0, nlist - self.index.nlist) if self.index.nlist is not None else 0
        return 2 * passes * vectors * self.index.dim * more / self.index.flop_per_s


def read_builds(path: Path, nodes: int = 1, cores: int = 1) -> Builds:
    """Read a table of `scale.py`, and the JSON file of the same name with its index.

    Raises:
        UserError: either cannot be read; the first invalid line is named.
    """
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    jobs = tuple(
        checked(BuildJob, row, f"{path}:{number}") for number, row in enumerate(rows, start=2)
    )
    if missing := [step for step in STEPS if step not in {job.step for job in jobs}]:
        raise UserError(f"{path}: no job of {', '.join(missing)}")
    facts = path.with_suffix(".json")
    return Builds(jobs, checked(MeasuredIndex, read_object(facts), str(facts)), nodes, cores)


def build_text(steps: Sequence[BuildStep]) -> str:
    """The steps of a build as a table, and what all of it takes."""
    rows = pd.DataFrame(steps)
    hours = rows["hours"].sum()
    core_hours = (rows["jobs"] * rows["job_hours"]).sum()
    disk = rows["disk_gb"].sum()
    total = f"in all {hours:,.1f} hours, {core_hours:,.0f} core hours, {disk:,.0f} GB on disk"
    return f"{rows.to_string(index=False, float_format='{:,.2f}'.format)}\n{total}"


def main() -> None:
    args = parse_options(
        __doc__,
        "config",
        "builds",
        chunks=(int, "chunks of each database; default: its corpus's"),
        nodes=(1, "nodes that build at the same time"),
        cores=(64, "cores of a node that builds"),
    )
    try:
        if min(args.nodes, args.cores, 1 if args.chunks is None else args.chunks) < 1:
            raise UserError("--chunks, --nodes and --cores must be at least 1")
        builds = read_builds(args.builds, args.nodes, args.cores)
        plans = {}
        for label, settings in load(args.config).databases.items():
            known = size(settings)
            if chunks := args.chunks or (known.chunks if known else None):
                steps = builds.plan(settings, chunks, known.held_out if known else 0.0)
                plans[label] = [asdict(step) for step in steps]
                if not args.json:
                    print(f"build of {label}, {chunks:,.0f} chunks\n{build_text(steps)}")
            elif not args.json:
                print(f"{label}: its corpus is known when it is read; state --chunks")
    except UserError as error:
        print(f"builds.py: error: {error}", file=sys.stderr)
        sys.exit(2)
    if args.json:
        print(json.dumps(plans))


if __name__ == "__main__":
    main()
