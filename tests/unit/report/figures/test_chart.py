"""The chart of the first page, from an invented table."""

import importlib.util
import sys

import pytest

from ragauge.report.figures import style
from ragauge.results.cells import VALUES, CellSource, CellStatus

KEYS = ("model", "dataset", "state", "method", "variant", "metric")
SECONDS = {  # of a variant in each state
    "naive": ("naive", {"documents": 7.0, "set": 0.4}),
    "superposition_k1": ("superposition", {"documents": 6.0, "set": 0.7}),
    "superposition_corpus": ("superposition", {"documents": 0.8, "set": 0.8}),
    "dense_k1": ("dense:minilm", {"documents": 0.3, "set": 0.3}),
    "oracle": ("oracle", {"documents": 0.5, "set": 0.5}),
    "epic": ("epic", {"documents": 1.0, "set": 1.0}),
}


@pytest.fixture
def chart(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "reports")
    specification = importlib.util.spec_from_file_location("chart", root / "reports/chart.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    yield module
    sys.modules.pop("figures", None)


def written(path, seconds):
    """Write the table of the item frontier; returns what reads it."""
    lines = [",".join([*KEYS, "quantity", *VALUES])]
    for place, (variant, (method, times)) in enumerate(seconds.items()):
        for state, value in times.items():
            keys = f"reader,nq_open,{state},{method},{variant},accuracy"
            for quantity, number, source in (
                ("quality", 0.1 + place / 10, CellSource.RECORDS),
                ("online_latency_s", value, CellSource.LATENCY),
            ):
                tail = f",,{number},{number * 0.9},{number * 1.1},80,,,,{CellStatus.MEASURED}"
                lines.append(f"{keys},{quantity}{tail},{source}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_both_states_have_the_full_prompt_and_tell_superpositions_variants_apart(chart, tmp_path):
    table = chart.table(written(tmp_path / "frontier.csv", SECONDS))
    figure = chart.chart(table, "nq_open", "reader")
    figure.draw_without_rendering()
    left, right = figure.axes
    places = [
        [tuple(map(float, line.get_xydata()[0])) for line in ax.lines if line.get_marker() == "o"]
        for ax in (left, right)
    ]
    assert (7.0, 0.1) in places[0]
    assert (0.4, 0.1) in places[1]
    [legend] = figure.legends
    looks = {
        text.get_text(): (handle.get_color(), handle.get_marker())
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    assert looks["superposition k1"] != looks["superposition corpus"]
    assert looks["full prompt"][0].lower() == style.INK.lower()
    assert {"dense k1", "oracle", chart.OTHERS} < looks.keys()
    assert "epic" not in looks
    assert left.get_ylim() == right.get_ylim()
    said = [text.get_text() for ax in (left, right) for text in ax.texts]
    assert said.count("full prompt, prefix cached") == 1
