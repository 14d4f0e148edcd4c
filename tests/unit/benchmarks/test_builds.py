"""Plans of large builds: the fit agrees with builds that it has not seen."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import builds
from builds import BY_SHARD, STEPS, Builds, Line, read_builds
from small_config import parsed

ROOT = Path(__file__).parents[3]
MEASURED = sorted(ROOT.glob("benchmarks/results/*/scale.csv"))
INDEX = builds.MeasuredIndex(nlist=64, iterations=10, dim=384, flop_per_s=50e9)
CONFIG = """\
run: c4
models: {smollm2-360m: {}}
databases:
  c4:
    corpus: c4-en
    shards: 300
    evaluation: documents
    evaluation_share: 0.00027
    indexes: {ivf: {nlist: 16384, train_vectors: 1000000}}
items: []
"""


def job(step: Any, chunks: int, peak_mb: float = 0.0) -> Any:
    seconds = 2 + chunks / 50
    return builds.BuildJob(
        corpus=1,
        shards=1,
        step=step,
        chunks=chunks,
        documents=chunks // 8,
        held_out=chunks // 40,
        seconds=seconds,
        cpu_s=seconds,
        peak_mb=peak_mb or 200 + chunks / 100,
        disk_bytes=10 * chunks,
    )


JOBS = tuple(job(step, chunks) for step in STEPS for chunks in (1000, 2000))
BUILDS = Builds(JOBS, INDEX, nodes=1, cores=4)


def planned(
    made: Any = BUILDS, chunks: float = 1e6, shards: int = 10, nlist: int = 64
) -> dict[str, Any]:
    """The steps of a build of so many chunks by name."""
    index = {"nlist": nlist, "train_vectors": 5000} if made.index.nlist else {"type": "hnsw"}
    database = parsed(
        databases={"d": {"corpus": "wikipedia-sample", "shards": shards, "indexes": {"i": index}}}
    )
    return {
        step.step.removesuffix(" i"): step
        for step in made.plan(database.databases["d"], chunks, 5000)
    }


def test_a_line_goes_through_its_points_and_never_falls() -> None:
    line = Line.through([1000, 2000], [22, 42])
    assert (line.fixed, line.slope) == pytest.approx((2, 1 / 50))
    assert Line.through([1000, 1000], [20, 22]) == Line(22, 0)
    assert Line.through([1000, 2000], [22, 21]) == Line(22, 0)
    below = Line.through([1000, 2000], [1, 5])
    assert below.fixed == 0
    assert below(3000) > 0


def test_more_jobs_than_cores_take_rounds() -> None:
    embed = planned()["embed"]
    assert embed.hours == pytest.approx(3 * embed.job_hours), "ten jobs on four cores"


def test_an_index_without_lists_holds_its_shard_in_memory() -> None:
    graph = INDEX.model_copy(update={"type": "hnsw", "nlist": None, "iterations": 0})
    jobs = tuple(
        job(one.step, one.chunks, 100 + one.chunks / 10) if one.step == "add" else one
        for one in JOBS
    )
    few, many = (planned(Builds(jobs, graph), shards=shards) for shards in (10, 1))
    assert (few["add"].job_gb, many["add"].job_gb) == pytest.approx((0.1 + 10, 0.1 + 100))
    assert few["embed"].job_gb == many["embed"].job_gb


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("step", BY_SHARD)
def test_the_fit_of_small_builds_predicts_the_largest(path: Path, step: Any) -> None:
    """What the capacity page rests on: jobs of one and two times the corpus against those of four
    times.
    """
    measured = read_builds(path)
    largest = max(job.corpus for job in measured.jobs)
    fit = Builds(tuple(job for job in measured.jobs if job.corpus < largest), measured.index).fit(
        step
    )
    for shards in (largest, 1):
        seen = [
            job
            for job in measured.jobs
            if (job.step, job.corpus, job.shards) == (step, largest, shards)
        ]
        assert seen, (step, shards)
        predicted = sum(fit.seconds(job.load) for job in seen)
        assert predicted == pytest.approx(sum(job.seconds for job in seen), rel=0.15, abs=0.5)


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
def test_memory_is_flat_over_shards_of_one_size_and_disk_is_linear(path: Path) -> None:
    measured = read_builds(path)
    alike = [job for job in measured.jobs if job.corpus == job.shards]
    largest = max(job.corpus for job in alike)
    for step in STEPS:
        small, large = (
            max(j.peak_mb for j in alike if (j.step, j.corpus) == (step, n)) for n in (1, largest)
        )
        assert large < 1.15 * small, step
    sizes = sorted({(job.corpus, job.shards) for job in measured.jobs})
    # a shard by itself may hold out more text than another
    for step, size in itertools.product(STEPS, sizes):
        if step in BY_SHARD:
            seen = [
                job for job in measured.jobs if (job.step, job.corpus, job.shards) == (step, *size)
            ]
            predicted = sum(measured.fit(step).disk_bytes(job.chunks) for job in seen)
            assert predicted == pytest.approx(
                sum(job.disk_bytes for job in seen), rel=0.1, abs=1000
            ), (step, size)


def planned_by_script(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the script prints for these arguments."""
    monkeypatch.setattr(sys, "argv", ["builds.py", *arguments])
    builds.main()
    return capsys.readouterr().out


def test_the_page_holds_what_the_script_prints(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c4.yaml").write_text(CONFIG)
    measured = root / "benchmarks" / "results" / "epyc-2core" / "scale.csv"
    printed = planned_by_script(
        [str(tmp_path / "c4.yaml"), str(measured), "--nodes", "32"], monkeypatch, capsys
    )
    page = (root / "docs" / "retrieval.md").read_text(encoding="utf-8")
    assert CONFIG in page
    assert printed in page


def test_chunks_may_be_stated_where_the_corpus_is_not_known(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (texts := tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "own.yaml").write_text(CONFIG.replace("c4-en", str(texts)))
    files = [str(tmp_path / "own.yaml"), str(root / "benchmarks/results/epyc-2core/scale.csv")]
    assert "state --chunks" in planned_by_script(files, monkeypatch, capsys)
    stated = planned_by_script([*files, "--chunks", "3000000"], monkeypatch, capsys)
    assert "build of c4, 3,000,000 chunks" in stated


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--nodes=0", "--nodes: must be at least 1, got 0"),
        ("missing.csv", "missing.csv: cannot be read: No such file"),
    ],
)
def test_wrong_arguments_are_one_line(
    option: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "c4.yaml").write_text(CONFIG)
    arguments = [
        str(tmp_path / "c4.yaml"),
        *([] if option.endswith(".csv") else ["scale.csv"]),
        option,
    ]
    with pytest.raises(SystemExit) as ended:
        planned_by_script(arguments, monkeypatch, capsys)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
