"""The committed reports/reproduction.md is the page that the code writes for
configs/papers/paper.yaml, and true.
"""

import csv
import re
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


def test_the_totals_of_the_page_are_those_of_the_tables_and_the_configuration(
    runs: Runs, cells: list[Shown]
) -> None:
    """Counted here from the CSVs: numbers, predictions, times, judges; and from the page itself."""
    columns: Counter[tuple[str, str]] = Counter()
    for path in PUBLISHED.glob("*.csv"):
        if path.stem.startswith(("superposition", "cfic", "piperag")) and not path.stem.endswith(
            "from_logs"
        ):
            with open(path, newline="") as file:
                columns += Counter(
                    (path.stem, name) for row in csv.DictReader(file) for name in row if row[name]
                )
    keys = "model generator dataset method variant setting system chunking judge item unit top_k k iterations positions"
    keys += " saliency pruning caching parallelism stale_tokens"
    numbers = {column: n for column, n in columns.items() if column[1] not in keys.split()}
    text = (ROOT / "reports/reproduction.md").read_text(encoding="utf-8")
    total, measured, shapes, known = re.search(  # type: ignore[union-attr]
        r"Of the (\d+) numbers in .*, (\d+) were measured on the paper's model and data;\n(\d+) are predicted from .*"
        r"error of .*% at most;\n(\d+) are recomputed",
        text,
    ).groups()
    assert int(total) == sum(numbers.values()) == len(cells)

    # not of figures
    guesses = [row for row in runs.predictions if row["item"] in {name for name, _ in numbers}]
    cycles = ("compute_cycles", "theoretical_speedup")
    assert (
        int(shapes)
        == sum(n for (_, name), n in numbers.items() if name in cycles)
        == len(cycles) * len(guesses)
    )
    count = Counter(cell.state for cell in cells)
    papers_models = {
        label for label, m in runs.config.models.items() if m.source and "smollm2" not in m.source
    }  # type: ignore[union-attr]
    committed = 0
    for table in (
        path for path in ROOT.glob("reports/reference-*/*.csv") if "_table_" in path.stem
    ):
        with open(table, newline="") as file:
            committed += sum(
                bool(r["published"] and r["measured"])
                and r["model"] in papers_models
                and "predicted" not in r["note"]
                for r in csv.DictReader(file)
                if "published" in r
            )
    assert int(measured) == count[State.MEASURED] == committed
    assert int(known) == count[State.RECOMPUTED] == len(recomputed())
    by_times = [c.state for c in cells if c.quantity == "cuda_speedup"]
    assert by_times == [State.NO_RATIO] * sum(
        n for (_, name), n in numbers.items() if name == "cuda_speedup"
    )
    [line] = (line for line in text.splitlines() if line.startswith("| **all**"))
    assert line.split(" | ")[2 : 2 + len(State)] == [str(count[state] or "") for state in State]


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
