"""The smoke experiment on Slurm through the profile as it is shipped: the results of the run on one machine."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

import workflow_folder
from ragauge import registry
from slurm_runs import PROFILE, failures, jobs, records, run

pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra 'cluster'")
pytestmark = [workflow_folder.needs_snakemake, pytest.mark.slow, pytest.mark.cluster]

RECORDS = ("data/*.jsonl", "answers/*/*/*.jsonl", "judgements/*/*/*.jsonl")
OFTEN = ("--slurm-init-seconds-before-status-checks", "2")  # 10 suit jobs of minutes
TIMED = r"latency|measured|seconds|time|_s$"  # quantities that two runs do not share


@pytest.fixture(scope="module")
def local(root: Path) -> Path:
    """The checkout, whose smoke experiment has been run on this machine."""
    if not (root / "reports" / "smoke" / "index.html").is_file():
        pytest.skip("needs the run on one machine to compare with: make smoke")
    return root


@pytest.fixture(scope="module")
def on_slurm(root: Path, local: Path, cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on Slurm, with the data type of the local run and the kernels measured here."""
    made = workflow_folder.copy_workflow(root, tmp_path_factory.mktemp("smoke"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGAUGE_DTYPE", dtype(local))  # the fastest one on one thread may be another
        patch.delenv("RAGAUGE_KERNELS")  # which the tests set for themselves
        run(made, *PROFILE, *OFTEN, "--configfile", "configs/ci/smoke.yaml")
    return made


def test_all_but_the_tiny_rules_ran_in_slurm(on_slurm: Path) -> None:
    done = jobs(on_slurm)
    assert {job.state for job in done} == {"COMPLETED"}, "\n\n".join(failures(on_slurm))
    assert {"data", "answers", "machine", "latency", "sft_data", "sft_train"} <= {job.rule for job in done}
    assert {"machine", "latency", "sft_train"} <= {job.rule for job in done if job.alone}
    assert not {job.rule for job in done} & set(registry.names("item"))
    assert not any(job.alone for job in done if job.rule in ("data", "answers"))


def test_records_are_those_of_the_local_run(local: Path, on_slurm: Path) -> None:
    here, there = local / "results" / "smoke", on_slurm / "results" / "smoke"
    names = sorted(path.relative_to(there) for pattern in RECORDS for path in there.glob(pattern))
    assert names
    for name in names:
        assert records(there / name) == records(here / name), name


def test_items_are_those_of_the_local_run_but_for_times(local: Path, on_slurm: Path) -> None:
    here, there = local / "reports" / "smoke", on_slurm / "reports" / "smoke"
    assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}
    for path in [*there.glob("superposition_*.csv"), *there.glob("cfic_*.csv")]:
        pd.testing.assert_frame_equal(timeless_rows(path), timeless_rows(here / path.name), obj=path.name)


def dtype(local: Path) -> str:
    """What `dtype: auto` became where the local run started, of the model that no export restricts to float32."""
    settings = yaml.safe_load((local / "results" / "smoke" / "config.yaml").read_bytes())
    return str(settings["models"]["smollm2-cfic"]["dtype"])


def timeless_rows(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(path)
    return rows[~rows["quantity"].astype(str).str.contains(TIMED)].reset_index(drop=True)
