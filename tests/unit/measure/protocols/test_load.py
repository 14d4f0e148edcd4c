"""`ragauge load` on a tiny model, and the item that shows what it wrote."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest

from ragauge.cli._main import main
from ragauge.cost.machine import Load
from ragauge.measure import timing
from ragauge.methods.base.method import STATES
from ragauge.methods.base.tree import DocumentTree
from ragauge.report.items import load_curve
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_load


@pytest.fixture(autouse=True)
def without_repeats(monkeypatch):
    monkeypatch.setattr(timing, "ATTEMPTS", 1)


def measured(out, material, *options):
    sizes = ["--requests=3", "--warmup=1", "--new-tokens=2", "--prompts=2", "--allow-load"]
    assert main(["load", *material, *sizes, *options, "--out", str(out)]) == 0
    return json.loads(out.read_text())


def test_every_method_gets_the_same_requests_at_every_level(material, tmp_path, capsys):
    names = ("bm25", "superposition")
    options = ["--methods", ",".join(names), "--rates", "50", "--clients", "2"]
    result = measured(tmp_path / "x.json", material, *options)
    levels = {
        (level["variant"], level["rate"], level["clients"]): level for level in result["levels"]
    }
    assert set(levels) == {(name, *at) for name in names for at in ((50.0, None), (None, 2))}
    requests = [
        [(row["prompt"], row["warmup"]) for row in level["requests"]] for level in levels.values()
    ]
    assert requests == [[(0, True), (1, False), (0, False), (1, False)]] * 4
    moments = [
        [row["arrival_at_s"] for row in levels[name, 50.0, None]["requests"]] for name in names
    ]
    assert moments[0] == pytest.approx(moments[1])
    for level in levels.values():
        assert all(
            row["total_s"] > row["first_token_s"] > row["queued_s"] >= 0
            for row in level["requests"]
        )
        assert level["summary"]["requests"] == 3
    assert result["protocol"]["state"] == "documents"
    assert capsys.readouterr().out.count("50 a second") == 2


@pytest.mark.parametrize("state", STATES)
def test_side_by_side_the_same_is_answered_sooner_or_together(
    material, tmp_path, state, monkeypatch
):
    from ragauge.methods.base.method import Answer

    written = {}
    made = Answer.__init__

    def kept(self, ids, *rest, **more):
        made(self, ids, *rest, **more)
        written.setdefault(batch, []).append(tuple(ids))

    monkeypatch.setattr(Answer, "__init__", kept)
    batch = "auto"
    methods = "naive,bm25,prompt_cache,superposition"
    options = ["--methods", methods, "--clients", "3", "--state", state, "--batch"]
    for batch in ("1", "3"):
        result = measured(tmp_path / f"{batch}.json", material, *options, batch)
        assert result["protocol"]["batch"] == int(batch)
        together = [
            level["requests"][1]["start_at_s"] < level["requests"][0]["end_at_s"]
            for level in result["levels"]
        ]
        assert together == [batch == "3"] * 4
    assert sorted(written["1"]) == sorted(written["3"])
    assert measured(tmp_path / "x.json", material, *options, "auto")["protocol"]["batch"] > 1


@pytest.mark.parametrize("state", STATES)
def test_a_tree_has_no_documents_of_earlier_requests(state, material, tmp_path, monkeypatch):
    stored = []
    read = DocumentTree.read
    monkeypatch.setattr(
        DocumentTree,
        "read",
        lambda tree, *given: stored.append(len([*tree.nodes()])) or read(tree, *given),
    )
    measured(
        tmp_path / "x.json",
        material,
        "--methods",
        "prefix_tree",
        "--clients",
        "1",
        "--state",
        state,
    )
    # prompts when warming up, then requests; with the list read, a prefix cache has all of it
    assert stored == [0] * (0 if state == "set" else 2 + 4)


def test_a_disturbed_level_is_repeated_once_and_the_quieter_counts(
    monkeypatch,
):
    monkeypatch.setattr(timing, "ATTEMPTS", 2)
    lm = SimpleNamespace(device="cpu")
    for shares, counted in (([0.0], 0), ([0.3, 0.0], 1), ([0.3, 0.2], 1), ([0.2, 0.3], 0)):
        runs = iter(range(9))
        loads = (
            nullcontext(Load(100.0, 100.0 * (psutil.cpu_count() or 1) * share)) for share in shares
        )
        monkeypatch.setattr(timing, "competing_load", lambda loads=loads: next(loads))
        result, seen = timing.watched(lm, False, lambda runs=runs: next(runs))
        assert (result, next(runs)) == (counted, len(shares))
        assert seen.load_share == pytest.approx(min(shares), abs=0.01)
        assert (seen.busy is None) == (seen.refused is None) == (min(shares) == 0.0)


def test_the_item_has_percentiles_rates_and_reasons(tmp_path):
    waits = {"naive": [2.0] * 20, "superposition": [0.2] * 19 + [0.4]}
    write_load(tmp_path, waits, unsupported={"cfic": "no long document"})
    table = load_curve.table(Runs(tmp_path))
    value = table.set_index(["variant", "quantity"])["measured"]
    assert value["naive", "first_token_p95_s"] == pytest.approx(2.0)
    assert value["superposition", "first_token_p50_s"] == pytest.approx(0.2)
    assert value["superposition", "per_token_p99_s"] == pytest.approx(0.1)
    assert value["naive", "goodput_per_s"] == 0
    assert value["superposition", "goodput_per_s"] == pytest.approx(
        value["superposition", "questions_per_s"]
    )
    assert "no long document" in table[table["variant"] == "cfic"]["note"].iloc[0]
    assert set(table["model"]) == {MODEL}
    axes = load_curve.draw(table).axes
    assert [panel.get_ylabel()[:7] for panel in axes] == ["time to", "goodput"]
    assert all(len(panel.get_lines()) >= 2 for panel in axes)


def test_percentiles_count_the_requests_that_have_times(tmp_path):
    write_load(tmp_path, {"naive": [2.0, None, 2.0, None, 2.0], "bm25": [None] * 3})
    table = load_curve.table(Runs(tmp_path)).set_index(["variant", "quantity"])
    waits = table.loc["naive", "first_token_p50_s"]
    rates = table.loc["naive", "questions_per_s"]
    assert (waits["n"], rates["n"]) == (3, 5)
    assert waits["note"].endswith("2 of 5 requests failed and have no times")
    assert table.loc["bm25", "goodput_per_s"]["note"].endswith(
        "3 of 3 requests failed and have no times"
    )


def test_clients_have_a_steady_window_beside_the_whole_and_remarks(tmp_path):
    rates = {"requests": 4, "questions_per_s": 1.0, "tokens_per_s": None, "goodput_per_s": 0.5}
    steady = rates | {"requests": 3, "questions_per_s": 2.0, "tokens_per_s": 9.0}
    level = {
        "variant": "naive",
        "clients": 2,
        "summary": rates | {"steady": steady},
        "requests": [{"remarks": ["3 of 20 tokens"]}, {}],
    }
    write_load(tmp_path, {}, levels=[level, level | {"variant": "bm25", "summary": rates}])
    table = load_curve.table(Runs(tmp_path)).set_index(["variant", "quantity"])
    assert (
        table["measured"]["naive", "questions_per_s"],
        table["n"]["naive", "goodput_per_s"],
    ) == (
        1.0,
        4,
    )
    assert table["measured"]["naive", "steady_questions_per_s"] == 2.0
    assert table["n"]["naive", "steady_tokens_per_s"] == 3
    assert ("naive", "tokens_per_s") not in table.index
    assert ("bm25", "steady_questions_per_s") not in table.index
    assert table["note"]["naive", "questions_per_s"].endswith("1 of 2 responses: 3 of 20 tokens")


def test_a_refused_level_says_why(tmp_path):
    refused = {
        "variant": "naive",
        "rate": 1.0,
        "clients": None,
        "refused": "others kept it busy",
        "summary": {},
    }
    write_load(tmp_path, {}, levels=[refused, refused | {"rate": None, "speed": 2.0}])
    table = load_curve.table(Runs(tmp_path))
    assert list(table["note"]) == ["refused: others kept it busy"] * 2
    assert list(zip(table["arrivals"], table["load"], strict=True)) == [
        ("poisson", 1),
        ("trace", 2),
    ]
