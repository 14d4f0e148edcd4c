"""The committed reports/reproduction.md is the page that the code writes for configs/papers/paper.yaml."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ragauge.config import loading
from ragauge.measure.predictions import predict
from ragauge.report.reproduction import Shown, State, page, published, states
from ragauge.results.planned import planned
from ragauge.results.runs import Runs

ROOT = Path(__file__).parents[2]
TABLE = """model,dataset,method,quantity,published,measured,note
mpt-7b-instruct,nq_open,superposition,accuracy,0.465,0.47,
"""


@pytest.fixture(scope="module")
def runs() -> Runs:
    return planned(loading.load(ROOT / "configs/papers/paper.yaml"), predict()["rows"])


def test_the_committed_page_is_what_the_code_writes(runs: Runs) -> None:
    written = (ROOT / "reports/reproduction.md").read_text(encoding="utf-8")
    assert page(runs, ROOT / "reports") == written, "run `ragauge report reproduction`"


def test_a_number_is_reproduced_where_a_committed_table_measured_it(runs: Runs, tmp_path: Path) -> None:
    def found(folder: Path) -> Shown:
        [cell] = (c for c in states(runs, folder) if (c.table, dict(c.keys), c.quantity) == wanted)
        return cell

    keys = {"model": "mpt-7b-instruct", "method": "superposition"}
    wanted = ("superposition_table_1", keys, "accuracy")
    assert found(tmp_path).state is State.PLANNED
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/superposition_table_1.csv").write_text(TABLE)
    assert (found(tmp_path).state, found(tmp_path).why) == (State.REPRODUCED, "in gpu")


def test_a_run_that_git_ignores_reproduces_nothing(runs: Runs, tmp_path: Path) -> None:
    """The tables of the miniature have the papers' models by name and random weights."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/reports/miniature/\n")
    for run in ("miniature", "gpu"):
        (tmp_path / "reports" / run).mkdir(parents=True)
        (tmp_path / "reports" / run / "superposition_table_1.csv").write_text(TABLE)
    found = {cell.why for cell in states(runs, tmp_path / "reports") if cell.state is State.REPRODUCED}
    assert found == {"in gpu"}


def test_every_printed_number_has_one_state() -> None:
    counted = Counter((cell.table, tuple(cell.keys.items()), cell.quantity) for cell in published())
    assert set(counted.values()) == {1}
