"""Plans of large builds: the fit agrees with builds that it has not seen."""

import sys
from pathlib import Path

import pytest

import builds
from builds import BY_SHARD, Builds, Line, read_builds

ROOT = Path(__file__).parents[3]
MEASURED = sorted(ROOT.glob("benchmarks/results/*/scale.csv"))
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


def test_a_line_goes_through_its_points_and_never_falls():
    assert Line.through([1000, 2000], [22, 42])(3000) == pytest.approx(62)
    assert Line.through([1000, 2000], [22, 21]) == Line(22, 0)
    assert Line.through([1000, 2000], [1, 5]).fixed == 0


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("step", BY_SHARD)
def test_the_fit_of_small_builds_predicts_the_largest(path, step):
    """What the capacity page rests on: jobs of one and two times the corpus against those of four times."""
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


def test_the_page_holds_what_the_script_prints(root, tmp_path, monkeypatch, capsys):
    (tmp_path / "c4.yaml").write_text(CONFIG)
    measured = root / "benchmarks" / "results" / "epyc-2core" / "scale.csv"
    given = ["builds.py", str(tmp_path / "c4.yaml"), str(measured), "--nodes", "32"]
    monkeypatch.setattr(sys, "argv", given)
    builds.main()
    page = (root / "docs" / "retrieval.md").read_text(encoding="utf-8")
    assert CONFIG in page
    assert capsys.readouterr().out in page
