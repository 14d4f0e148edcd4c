"""Documents that are not in memory, timed on a tiny decoder, and the item that is made of their
seconds.
"""

import pytest

from ragauge import registry
from ragauge.config.protocols import LatencySettings
from ragauge.errors import UserError
from ragauge.measure.protocols import cold, latency
from ragauge.measure.timing import Bench
from ragauge.methods.base.making import make
from ragauge.results.runs import Runs
from synthetic_run import write_latency, write_variant
from tiny_models import tiny_lm, tiny_prompt

RATE = {"median": 1.0, "low": 1.0, "high": 1e9, "n": 1}
MACHINE = {"bandwidth_bytes_per_s": RATE, "matmul_flop_per_s": {"float32": RATE}}


def settings(*methods, **options):
    stated = {"new_tokens": 3, "trials": 1, "allow_load": True} | options
    return LatencySettings(methods=list(methods), dataset="random tokens", **stated)


def test_the_protocol_times_what_is_computed_kept_and_read(tmp_path):
    variants = {"naive": make("naive"), "k1": make("superposition", top_k=1)}
    lm = tiny_lm()
    cold_documents = settings("k1", trials=2, states=["documents", "set", "disk"])
    bench = Bench(lm, [tiny_prompt()])
    result = latency.measure_latency(
        variants, bench, cold_documents, machine=MACHINE, folder=tmp_path / "kept"
    )
    (row,) = result.documents.rows
    # naive prepares nothing
    assert (row.variant, row.prompt) == ("k1", 0)
    assert min(row.computing_s, row.missed_s, row.loading_s, row.bytes) > 0
    assert not list((tmp_path / "kept").iterdir())
    assert lm.documents is None
    assert result.documents.state == cold.STATE
    result = latency.measure_latency(variants, bench, settings("k1"), machine=MACHINE)
    assert result.documents is None


def test_a_disk_that_keeps_nothing_is_told(tmp_path, monkeypatch):
    lm = tiny_lm()
    method = make("superposition", top_k=1)
    monkeypatch.setattr(cold, "UNBOUNDED", 0)
    with pytest.raises(UserError, match="k1: its documents could not be stored in"):
        cold.time_documents("k1", 0, lambda: method.prepare(lm, tiny_prompt()), lm, tmp_path)
    assert lm.documents is None
    assert not list(tmp_path.iterdir())


@pytest.fixture
def results(tmp_path):
    """A run in which superposition's documents take 4 s to compute, 1.5 s to write and 0.5 s to
    read.
    """
    folder = tmp_path / "results"
    write_variant(folder, "naive", "naive", [False, True])
    write_variant(folder, "k1", "superposition", [True, True], params={"top_k": 1})
    trial = {
        "variant": "k1",
        "prompt": 0,
        "computing_s": 4.0,
        "missed_s": 5.5,
        "loading_s": 0.5,
        "bytes": 9,
    }
    rows = [
        {**trial, "trial": i, "disturbed": i == 2, "loading_s": [0.5, 0.5, 90.0][i]}
        for i in range(3)
    ]
    write_latency(
        folder, {"naive": [3.0, 3.0], "k1": [1.0] * 3}, documents={"state": "cold", "rows": rows}
    )
    return folder


def test_the_item_has_latency_over_hit_rates_and_what_breaks_even(results):
    table = registry.module("item", "documents_reuse").table(Runs(results))
    mine = table[table["variant"] == "k1"]
    found = {
        q: part["measured"].iloc[0] for q, part in mine.groupby("quantity") if q != "mean_latency_s"
    }
    assert {q: found[q] for q in ("computing_s", "saving_s", "loading_s", "online_s")} == {
        "computing_s": 4.0,
        "saving_s": 1.5,
        "loading_s": 0.5,
        "online_s": 1.0,
    }
    assert found["stored_bytes"] == 9
    assert found["break_even_reuses"] == 1
    assert found["break_even_questions"] == 4
    assert found["break_even_hit_rate"] == pytest.approx(0.7)
    assert found["quality"] == 1.0
    curve = mine[mine["quantity"] == "mean_latency_s"].set_index("hit_rate")["measured"]
    assert [curve[0.0], curve[0.5], curve[1.0]] == [6.5, 4.0, 1.5]
    assert list(curve.index) == [i / 10 for i in range(11)]
    naive = table[table["variant"] == "naive"]
    assert set(naive["measured"]) == {3.0}
    assert set(table[table["quantity"] != "quality"]["source"]) == {"latency"}
    of = mine.set_index("quantity")
    assert of.loc["loading_s", "note"].startswith("medians of 2 trials with cold documents; ")
    assert of.loc["online_s", "note"].startswith("medians of 3 trials, 5 generated tokens; ")
    assert (of.loc["loading_s", "n"], of.loc["online_s", "n"]) == (2, 3)
