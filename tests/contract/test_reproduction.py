"""The committed reports/reproduction.md is the page that the code writes for configs/papers/paper.yaml, and true."""

import csv
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ragauge.config import loading
from ragauge.measure.predictions import predict
from ragauge.measure.recomputed import figure_7, recomputed
from ragauge.report.page.reproduction import Shown, State, page, planned, states
from ragauge.results.directions import directions
from ragauge.results.runs import Runs

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "src/ragauge/results/published"
TABLE = """model,dataset,method,quantity,published,measured,ratio,note
mpt-7b-instruct,nq_open,superposition,accuracy,0.465,0.47,1.01075,
"""


@pytest.fixture(scope="module")
def runs() -> Runs:
    return planned(loading.load(ROOT / "configs/papers/paper.yaml"), predict()["rows"])


@pytest.fixture(scope="module")
def cells(runs: Runs) -> list[Shown]:
    return states(runs, ROOT / "reports", recomputed())


def test_the_committed_page_is_what_the_code_writes(runs: Runs, cells: list[Shown]) -> None:
    rows = directions(ROOT / "configs/papers/claims.yaml", ROOT / "reports")
    written = (ROOT / "reports/reproduction.md").read_text(encoding="utf-8")
    drawn = [row for row in runs.predictions if "figure" in row["item"]], figure_7()
    assert page(cells, rows, *drawn) == written, "run `ragauge report reproduction`"
    with open(ROOT / "reports/directions.csv", newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [
            {key: str(value) for key, value in row.items()} for row in rows
        ]


def test_people_whose_judgements_the_configuration_has_are_no_missing_input(
    runs: Runs, tmp_path: Path
) -> None:
    assert runs.config is not None
    people = {"human_judgements": str(tmp_path / "people.csv")}
    config = runs.config.model_copy(update={**people, "pipelines": {}, "staleness": {}})
    (tmp_path / "people.csv").write_text("dataset,model,variant,key,person,label,faithful\n")
    cells = states(planned(config, []), ROOT / "reports", {})
    human = Counter(c.state for c in cells if c.keys.get("judge") == "human")
    assert (
        human
        == Counter(c.state for c in cells if c.keys.get("judge") == "chatgpt")
        == {State.NO_RATIO: 12}
    )


def test_a_number_is_measured_where_a_committed_table_has_it(runs: Runs, tmp_path: Path) -> None:
    def found(folder: Path) -> Shown:
        [cell] = (
            c for c in states(runs, folder, {}) if (c.table, dict(c.keys), c.quantity) == wanted
        )
        return cell

    keys = {"model": "mpt-7b-instruct", "method": "superposition"}
    wanted = ("superposition_table_1", keys, "accuracy")
    assert found(tmp_path).state is State.PLANNED
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/superposition_table_1.csv").write_text(TABLE)
    assert (found(tmp_path).state, found(tmp_path).why) == (State.MEASURED, "in gpu")
    assert found(tmp_path).ratio == 1.01075


@pytest.mark.parametrize(
    ("model", "state"), [("retro", State.MEASURED), ("smollm2-360m", State.PLANNED)]
)
def test_piperag_is_measured_on_its_own_model(
    runs: Runs, tmp_path: Path, model: str, state: State
) -> None:
    (tmp_path / "gpu").mkdir()
    line = f"{model},wikipedia,retro,perplexity,13.49,13.6,1.00815,\n"
    (tmp_path / "gpu/piperag_table_1.csv").write_text(TABLE.partition("\n")[0] + "\n" + line)
    assert [cell.state for cell in states(runs, tmp_path, {}) if cell.published == 13.49] == [state]


def test_a_run_that_git_ignores_measures_nothing(runs: Runs, tmp_path: Path) -> None:
    """The tables of the miniature have the papers' models by name and random weights."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/reports/miniature/\n")
    for run in ("miniature", "gpu"):
        (tmp_path / "reports" / run).mkdir(parents=True)
        (tmp_path / "reports" / run / "superposition_table_1.csv").write_text(TABLE)
    found = {
        cell.why for cell in states(runs, tmp_path / "reports", {}) if cell.state is State.MEASURED
    }
    assert found == {"in gpu"}
