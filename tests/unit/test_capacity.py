"""Plans of large builds: the fit agrees with builds that it has not seen, and the sums are what the page says."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ragauge import cli
from ragauge.cost import capacity
from ragauge.cost.capacity import BY_SHARD, STEPS, BuildJob, Line, Measured, Target
from ragauge.errors import UserError

MEASURED = sorted(Path(__file__).parents[2].glob("reports/*/scale.csv"))
INDEX = Measured(nlist=64, iterations=10, dim=384, flop_per_s=50e9)


def job(step: str, chunks: int, seconds: float, shards: int = 1) -> BuildJob:
    documents, held_out = chunks // 8, chunks // 40
    return BuildJob(1, shards, step, chunks, documents, held_out, seconds, seconds, 200 + chunks / 100, 10 * chunks)


JOBS = [job(step, chunks, 2 + chunks / 50) for step in STEPS for chunks in (1000, 2000)]


def target(**changes: float) -> Target:
    values = {"chunks": 1e6, "held_out": 5000, "shard_chunks": 1e5, "nodes": 1, "cores": 4, "nlist": 64}
    return Target(**({"train_vectors": 5000} | values | changes))  # type: ignore[arg-type]


def test_a_line_goes_through_its_points_and_never_falls() -> None:
    line = Line.through([1000, 2000], [22, 42])
    assert (line.fixed, line.slope) == pytest.approx((2, 1 / 50))
    assert Line.through([1000, 1000], [20, 22]) == Line(22, 0)
    assert Line.through([1000, 2000], [22, 21]) == Line(22, 0)
    below = Line.through([1000, 2000], [1, 5])
    assert below.fixed == 0
    assert below(3000) > 0


def test_a_plan_counts_jobs_rounds_memory_and_disk() -> None:
    steps = {step.step: step for step in capacity.plan(capacity.rates(JOBS), INDEX, target())}
    assert list(steps) == list(STEPS)
    embed = steps["embed"]
    assert embed.jobs == 10
    assert embed.job_hours == pytest.approx((2 + 1e5 / 50) / 3600)
    assert embed.hours == pytest.approx(3 * embed.job_hours), "ten jobs on four cores are three rounds"
    assert embed.node_gb == pytest.approx(4 * (200 + 2000 / 100) / 1000), "the most that was seen: steps work in blocks"
    assert embed.disk_gb == pytest.approx(1e6 * 10 / 1e9)
    assert embed.times_measured == pytest.approx(50)
    assert steps["merge"].jobs == 1
    assert steps["merge"].job_gb == embed.job_gb
    assert steps["gather"].job_gb == embed.job_gb
    mark = steps["mark"]
    assert mark.jobs == 10
    assert mark.job_gb == pytest.approx((200 + 5000 * 40 / 100) / 1000), "signatures of all held-out texts"
    assert mark.job_hours == pytest.approx((2 + (1e5 / 8 + 5000) / (1 / 8 + 1 / 40) / 50) / 3600)
    assert mark.times_measured == pytest.approx((1e5 / 8 + 5000) / (250 + 50))
    train = steps["train"]
    assert train.job_hours == pytest.approx((2 + 5000 / 50) * 5000 / 2000 / 3600), "never less than in proportion"
    assert train.job_gb == pytest.approx((200 + 2000 / 100) / 1000 + 4 * 384 * (5000 - 2000) / 1e9)


def test_twice_the_nodes_take_half_the_time_of_steps_by_shard() -> None:
    one, two = (capacity.plan(capacity.rates(JOBS), INDEX, target(chunks=8e6, nodes=n)) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert b.hours == pytest.approx(a.hours / (2 if a.step in BY_SHARD else 1))


def test_an_index_without_lists_holds_its_shard_in_memory() -> None:
    graph = Measured(nlist=None, iterations=0, dim=384, flop_per_s=50e9)
    jobs = [replace(job, peak_mb=100 + job.chunks / 10) if job.step == "add" else job for job in JOBS]
    few, many = (
        {s.step: s for s in capacity.plan(capacity.rates(jobs, in_memory=True), graph, target(shard_chunks=n))}
        for n in (1e5, 1e6)
    )
    assert (few["add"].job_gb, many["add"].job_gb) == pytest.approx((0.1 + 10, 0.1 + 100))
    assert few["embed"].job_gb == many["embed"].job_gb
    lists = capacity.plan(capacity.rates(jobs, in_memory=True), graph, target(nlist=16_384))
    assert [step.job_hours for step in lists] == [few[step.step].job_hours for step in lists]


def test_more_lists_cost_their_matrix_products() -> None:
    few, many = (
        {s.step: s.job_hours * 3600 for s in capacity.plan(capacity.rates(JOBS), INDEX, target(nlist=n))}
        for n in (64, 16_384)
    )
    assert many["add"] - few["add"] == pytest.approx(2 * 1e5 * 384 * 16_320 / 50e9)
    assert many["train"] - few["train"] == pytest.approx(2 * 10 * 5000 * 384 * 16_320 / 50e9)
    assert many["embed"] == few["embed"]


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("step", BY_SHARD)
def test_the_fit_of_small_builds_foretells_the_largest(path: Path, step: str) -> None:
    """What the capacity page rests on: jobs of one and two times the corpus against those of four times."""
    jobs = capacity.read(path)
    largest = max(job.corpus for job in jobs)
    rate = capacity.rates(job for job in jobs if job.corpus < largest)[step]
    for shards in (largest, 1):
        seen = [job for job in jobs if (job.step, job.corpus, job.shards) == (step, largest, shards)]
        assert seen, (step, shards)
        foretold = sum(rate.seconds(job.load) for job in seen)
        assert foretold == pytest.approx(sum(job.seconds for job in seen), rel=0.15, abs=0.5)


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
def test_memory_is_flat_over_shards_of_one_size_and_disk_is_linear(path: Path) -> None:
    jobs = capacity.read(path)
    alike = [job for job in jobs if job.corpus == job.shards]
    largest = max(job.corpus for job in alike)
    for step in STEPS:
        small, large = (max(j.peak_mb for j in alike if (j.step, j.corpus) == (step, n)) for n in (1, largest))
        assert large < 1.15 * small, step
    builds = sorted({(job.corpus, job.shards) for job in jobs})
    for step, build in itertools.product(BY_SHARD, builds):  # a shard by itself may hold out more text than another
        disk = capacity.rates(jobs)[step].disk_bytes
        seen = [job for job in jobs if (job.step, job.corpus, job.shards) == (step, *build)]
        foretold = sum(disk(job.chunks) for job in seen)
        assert foretold == pytest.approx(sum(job.disk_bytes for job in seen), rel=0.1, abs=1000), (step, build)


def write(path: Path, jobs: list[BuildJob]) -> Path:
    names = list(BuildJob.__dataclass_fields__)
    lines = [",".join(str(getattr(job, name)) for name in names) for job in jobs]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    path.with_suffix(".json").write_text('{"nlist": 64, "iterations": 10, "dim": 384, "flop_per_s": 5e10}')
    return path


def test_the_verb_prints_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    assert cli.main(["capacity", "--measured", str(path), "--chunks", "3000000000", "--nodes", "10"]) == 0
    printed = capsys.readouterr().out
    assert "3,000,000,000 chunks in 300 shards, 100,000 texts held out, 10 nodes of 64 cores" in printed
    assert "| embed | 300 |" in printed
    hours = [float(line.split("|")[4].replace(",", "")) for line in printed.splitlines() if line.startswith("| embed")]
    assert hours == [pytest.approx(math.ceil(300 / 640) * (2 + 1e7 / 50) / 3600, abs=0.01)]


def test_the_page_holds_what_the_command_prints(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = root / "reports" / "epyc-2core" / "scale.csv"
    assert cli.main(["capacity", "--measured", str(measured), "--chunks", "3000000000", "--nodes", "32"]) == 0
    assert capsys.readouterr().out in (root / "docs" / "capacity.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("embed,1000", "embed,many"), r"scale\.csv:8: not a job of a build"),
        (lambda text: text.replace(",embed,", ",dance,"), r"scale\.csv:8: unknown step 'dance'; known: chunks"),
        (lambda text: "\n".join(text.splitlines()[:7]), "no job of add, embed, merge, train"),
        (lambda text: "x\n1\n", r"scale\.csv:2: not a job of a build"),
    ],
)
def test_a_table_that_is_none_is_named(tmp_path: Path, change: object, message: str) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        capacity.read(path)


@pytest.mark.parametrize("text", ["", "[]", '{"nlist": 64}', '{"nlist": "many"}'])
def test_a_description_of_the_machine_that_is_none_is_named(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    path.with_suffix(".json").write_text(text)
    assert cli.main(["capacity", "--measured", str(path), "--chunks", "1000"]) == 2
    assert "scale.json: not what benchmarks/scale.py writes" in capsys.readouterr().err
