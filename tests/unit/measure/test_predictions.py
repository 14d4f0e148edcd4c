"""Predictions of the paper's own models: written by one verb, shown in the tables where nothing was measured."""

import json
import math
from pathlib import Path

import pytest

from ragauge import registry
from ragauge.cli import main
from ragauge.measure import predictions
from ragauge.results.publications import PREDICTED
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_variant

MPT = "mpt-7b-instruct"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "deep" / "predictions.json"
    assert main(["cost", "--published", "--out", str(path)]) == 0
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """The results of a run of another model, with the predictions beside them."""
    (tmp_path / "predictions.json").write_bytes(written.read_bytes())
    write_variant(tmp_path, "plain", "naive", [True, False])
    write_variant(tmp_path, "sp", "superposition", [True, True], params={"top_k": 1})
    return tmp_path


def table(number: int, folder: Path):
    return registry.module("item", f"superposition_table_{number}").table(Runs(folder))


def test_every_row_of_the_four_tables_and_point_of_figure_5_is_there_once(written: Path) -> None:
    rows = json.loads(written.read_text())["rows"]
    places = [(row["item"], row["model"], *row["keys"].values()) for row in rows]
    assert len(places) == len(set(places)) == 132 + 4 * 5
    assert all(row["critical_path_cycles"] > 0 for row in rows)


@pytest.mark.parametrize("number", predictions.COUNTS)
def test_a_prediction_stands_beside_every_published_number(number: int, folder: Path) -> None:
    rows = table(number, folder)
    published = rows[(rows["model"] != MODEL) & rows["quantity"].isin(["compute_cycles", "theoretical_speedup"])]
    assert len(published) == 2 * len(list(predictions.read_csv(f"superposition_table_{number}")))
    assert published[["published", "measured", "ratio"]].notna().all(axis=None)
    assert (published["note"] == PREDICTED).all()
    cycles = published[published["quantity"] == "compute_cycles"]["ratio"]
    assert cycles.sub(1).abs().max() < 0.035


def test_ours_is_a_quantity_of_its_own(folder: Path) -> None:
    rows = table(5, folder)
    ours = rows[(rows["quantity"] == "critical_path_speedup") & (rows["model"] == MPT)]
    assert len(ours) == 16
    assert ours["published"].isna().all()
    kept_8 = ours[(ours["method"] == "superposition") & (ours["top_k"] == 8)].iloc[0]
    assert kept_8["measured"] == pytest.approx(84, abs=1)  # its queries are read at the same time


def test_what_was_measured_comes_before_what_was_predicted(folder: Path) -> None:
    write_variant(folder, "plain", "naive", [None, None], model=MPT)  # longer than its context
    write_variant(folder, "sp", "superposition", [True, False], params={"top_k": 1}, model=MPT)
    rows = table(1, folder)
    mine = rows[(rows["model"] == MPT) & (rows["quantity"] == "compute_cycles")].set_index("method")
    assert PREDICTED not in mine.loc["superposition", "note"]
    assert mine.loc["superposition", "n"] == 2
    assert mine.loc["naive", "note"].startswith(PREDICTED)
    assert "too long" in mine.loc["naive", "note"]
    assert math.isnan(mine.loc["naive", "low"])


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["cost", "--published", "--out", str(tmp_path / "file" / "p.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
