"""Sizes of databases by hand; plans of large builds: the fit agrees with builds that it has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragauge import cli
from ragauge.assets.catalog import entries
from ragauge.config.loading import parse
from ragauge.errors import UserError
from ragauge.measure import databases
from ragauge.measure.databases import BY_SHARD, STEPS, BuildJob, Builds, BuildStep, Line, MeasuredIndex, read_builds
from ragauge.retrieval.hub import CORPORA, HubCorpus
from ragauge.retrieval.settings import DatabaseSettings

SMALL = HubCorpus("hf:some/texts", 1000, 446, 2.0)  # 100 tokens a document
MEASURED = sorted(Path(__file__).parents[3].glob("benchmarks/results/*/scale.csv"))
INDEX = MeasuredIndex(nlist=64, iterations=10, dim=384, flop_per_s=50e9)
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


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "wikipedia", SMALL)


def settings(**changes: Any) -> DatabaseSettings:
    data = {"run": "t", "models": {"llama-2-7b": {}}, "datasets": {"nq_open": {}}, "methods": {"naive": {}}}
    return parse({**data, "databases": {"d": {"corpus": "wikipedia", **changes}}}, "t.yaml").databases["d"]


# --- sizes ---


@pytest.mark.usefixtures("small")
def test_a_database_by_hand() -> None:
    made = databases.size(
        settings(shards=4, indexes={"ivf": {}, "half": {"shards": 2}, "filled": {"filled": 10**6, "parts": 2}})
    )
    assert made is not None
    assert made.documents == made.held_out == 1000, "the tail of every document is held out"
    assert made.chunks == pytest.approx(1000 * 100 / 64 + 500)
    assert made.chunks_gb == pytest.approx((2 * 100_000 + 512_000) / 1e9)
    assert made.embeddings_gb == pytest.approx(2 * 384 * made.chunks / 1e9)
    assert made.indexes_gb == pytest.approx((2 * 72 * 1.5 * made.chunks + 3 * 72 * 10**6) / 1e9)
    assert made.disk_gb == made.chunks_gb + made.embeddings_gb + made.indexes_gb


@pytest.mark.usefixtures("small")
def test_held_out_texts_are_those_of_the_database_and_of_its_evaluation_sets() -> None:
    sets = {"wikipedia": {"part": "all", "limit": 30}}
    made = databases.size(settings(evaluation="documents", evaluation_share=0.1, evaluation_sets=sets))
    assert made is not None
    assert made.held_out == pytest.approx(100 + 30)
    assert made.download_gb == pytest.approx(2.0 + 0.06)


@pytest.mark.usefixtures("small")
def test_the_first_documents_are_streamed_by_every_shard() -> None:
    made, complete = databases.size(settings(limit=100, shards=4)), databases.size(settings(shards=4))
    assert made is not None
    assert complete is not None
    assert made.chunks == pytest.approx(complete.chunks / 10)
    assert (made.download_gb, complete.download_gb) == (pytest.approx(4 * 0.2), 2.0)


def test_c4_has_the_papers_three_billion_chunks() -> None:
    made = databases.size(settings(corpus="c4-en"))
    assert made is not None
    assert made.chunks == pytest.approx(3e9, rel=0.05)


def test_a_corpus_that_is_not_known_before_it_is_read_has_no_size() -> None:
    assert databases.size(settings(corpus="wikipedia-sample")) is None


def test_the_shipped_encoders_have_a_width() -> None:
    sized = {name for name, entry in entries().items() if entry.kind == "encoder" and entry.width}
    assert {"minilm", "contriever", "bge-large-en-v1.5", "llm-embedder"} <= sized
    assert all(entries()[name].download_gb for name in sized)


# --- measured builds ---


def job(step: Any, chunks: int, peak_mb: float = 0.0) -> BuildJob:
    seconds = 2 + chunks / 50
    return BuildJob(
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


def planned(builds: Builds = BUILDS, chunks: float = 1e6, shards: int = 10, nlist: int = 64) -> dict[str, BuildStep]:
    """The steps of a build of so many chunks by name."""
    index = {"nlist": nlist, "train_vectors": 5000} if builds.index.nlist else {"type": "hnsw"}
    made = settings(shards=shards, indexes={"i": index})
    return {step.step.removesuffix(" i"): step for step in builds.plan(made, chunks, 5000)}


def test_a_line_goes_through_its_points_and_never_falls() -> None:
    line = Line.through([1000, 2000], [22, 42])
    assert (line.fixed, line.slope) == pytest.approx((2, 1 / 50))
    assert Line.through([1000, 1000], [20, 22]) == Line(22, 0)
    assert Line.through([1000, 2000], [22, 21]) == Line(22, 0)
    below = Line.through([1000, 2000], [1, 5])
    assert below.fixed == 0
    assert below(3000) > 0


def test_a_plan_counts_jobs_rounds_memory_and_disk() -> None:
    steps = planned()
    assert list(steps) == list(STEPS)
    embed = steps["embed"]
    assert embed.jobs == 10
    assert embed.job_hours == pytest.approx((2 + 1e5 / 50) / 3600)
    assert embed.hours == pytest.approx(3 * embed.job_hours), "ten jobs on four cores are three rounds"
    assert embed.node_gb == pytest.approx(4 * (200 + 2000 / 100) / 1000), "the most that was seen: steps work in blocks"
    assert embed.disk_gb == pytest.approx(1e6 * 10 / 1e9)
    assert embed.times_measured == pytest.approx(50)
    assert steps["merge"].jobs == 1
    assert steps["merge"].job_gb == steps["gather"].job_gb == embed.job_gb
    mark = steps["mark"]
    assert mark.jobs == 10
    assert mark.job_gb == pytest.approx((200 + 5000 * 40 / 100) / 1000), "signatures of all held-out texts"
    assert mark.job_hours == pytest.approx((2 + (1e5 / 8 + 5000) / (1 / 8 + 1 / 40) / 50) / 3600)
    assert mark.times_measured == pytest.approx((1e5 / 8 + 5000) / (250 + 50))
    train = steps["train"]
    assert train.job_hours == pytest.approx((2 + 5000 / 50) * 5000 / 2000 / 3600), "never less than in proportion"
    assert train.job_gb == pytest.approx((200 + 2000 / 100) / 1000 + 4 * 384 * (5000 - 2000) / 1e9)


def test_an_index_without_lists_holds_its_shard_in_memory() -> None:
    graph = INDEX.model_copy(update={"type": "hnsw", "nlist": None, "iterations": 0})
    jobs = tuple(job(one.step, one.chunks, 100 + one.chunks / 10) if one.step == "add" else one for one in JOBS)
    few, many = (planned(Builds(jobs, graph), shards=shards) for shards in (10, 1))
    assert (few["add"].job_gb, many["add"].job_gb) == pytest.approx((0.1 + 10, 0.1 + 100))
    assert few["embed"].job_gb == many["embed"].job_gb


def test_more_lists_cost_their_matrix_products() -> None:
    few, many = ({name: step.job_hours * 3600 for name, step in planned(nlist=nlist).items()} for nlist in (64, 16_384))
    assert many["add"] - few["add"] == pytest.approx(2 * 1e5 * 384 * 16_320 / 50e9)
    assert many["train"] - few["train"] == pytest.approx(2 * 10 * 5000 * 384 * 16_320 / 50e9)
    assert many["embed"] == few["embed"]


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("step", BY_SHARD)
def test_the_fit_of_small_builds_predicts_the_largest(path: Path, step: Any) -> None:
    """What the capacity page rests on: jobs of one and two times the corpus against those of four times."""
    builds = read_builds(path)
    largest = max(job.corpus for job in builds.jobs)
    fit = Builds(tuple(job for job in builds.jobs if job.corpus < largest), builds.index).fit(step)
    for shards in (largest, 1):
        seen = [job for job in builds.jobs if (job.step, job.corpus, job.shards) == (step, largest, shards)]
        assert seen, (step, shards)
        predicted = sum(fit.seconds(job.load) for job in seen)
        assert predicted == pytest.approx(sum(job.seconds for job in seen), rel=0.15, abs=0.5)


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
def test_memory_is_flat_over_shards_of_one_size_and_disk_is_linear(path: Path) -> None:
    builds = read_builds(path)
    alike = [job for job in builds.jobs if job.corpus == job.shards]
    largest = max(job.corpus for job in alike)
    for step in STEPS:
        small, large = (max(j.peak_mb for j in alike if (j.step, j.corpus) == (step, n)) for n in (1, largest))
        assert large < 1.15 * small, step
    sizes = sorted({(job.corpus, job.shards) for job in builds.jobs})
    for step, size in itertools.product(STEPS, sizes):  # a shard by itself may hold out more text than another
        if step in BY_SHARD:
            seen = [job for job in builds.jobs if (job.step, job.corpus, job.shards) == (step, *size)]
            predicted = sum(builds.fit(step).disk_bytes(job.chunks) for job in seen)
            assert predicted == pytest.approx(sum(job.disk_bytes for job in seen), rel=0.1, abs=1000), (step, size)


def write(path: Path, jobs: tuple[BuildJob, ...]) -> Path:
    names = list(BuildJob.model_fields)
    path.write_text("\n".join([",".join(names), *(",".join(map(str, job.model_dump().values())) for job in jobs)]))
    path.with_suffix(".json").write_text('{"nlist": 64, "iterations": 10, "dim": 384, "flop_per_s": 5e10}')
    return path


def test_the_page_holds_what_the_command_prints(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c4.yaml").write_text(CONFIG)
    measured = root / "benchmarks" / "results" / "epyc-2core" / "scale.csv"
    shapes = ["estimate", str(tmp_path / "c4.yaml"), "--from-shapes"]
    assert cli.main([*shapes, "--builds", str(measured), "--nodes", "32"]) == 0
    _, _, build = capsys.readouterr().out.partition("build of c4")
    page = (root / "docs" / "capacity.md").read_text(encoding="utf-8")
    assert CONFIG in page
    assert f"build of c4{build}" in page


def test_chunks_may_be_stated_where_the_corpus_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    (texts := tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "own.yaml").write_text(CONFIG.replace("c4-en", str(texts)))
    command = ["estimate", str(tmp_path / "own.yaml"), "--from-shapes", "--builds", str(path)]
    assert cli.main(command) == 0
    assert "build of" not in capsys.readouterr().out
    assert cli.main([*command, "--chunks", "3000000"]) == 0
    assert "build of c4, 3,000,000 chunks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("embed,1000", "embed,many"), r"scale\.csv:8: chunks: must be a valid integer"),
        (
            lambda text: text.replace(",embed,", ",dance,"),
            r"scale\.csv:8: step: must be 'chunks', 'mark'.* not 'dance'",
        ),
        (lambda text: "\n".join(text.splitlines()[:7]), "no job of embed, train, add, merge"),
        (lambda text: "x\n1\n", r"scale\.csv:2: corpus: is missing"),
    ],
)
def test_a_table_of_other_things_is_refused(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=message):
        read_builds(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"scale\.json: not valid JSON"),
        ("[]", r"scale\.json: must be a JSON object"),
        ('{"nlist": 64}', r"scale\.json: dim: is missing"),
        ('{"dim": 4, "flop_per_s": 1}', r"scale\.json: nlist: is missing"),
        ('{"nlist": "many"}', r"scale\.json: nlist: must be a valid integer"),
    ],
)
def test_a_description_of_other_things_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "scale.csv", JOBS)
    path.with_suffix(".json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_builds(path)
