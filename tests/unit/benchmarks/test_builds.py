"""Plans of large builds: the fit agrees with builds that it has not seen."""

from pathlib import Path

import pytest

from builds import BY_SHARD, Builds, Line, read_builds

ROOT = Path(__file__).parents[3]
MEASURED = sorted(ROOT.glob("benchmarks/results/*/scale.csv"))


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
