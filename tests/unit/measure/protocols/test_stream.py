"""`ragauge stream` on a tiny model, the store in memory, and the item that shows what was measured."""

import json

import numpy as np
import pytest

import tiny_models
from ragauge.cli._main import main
from ragauge.config.protocols import StreamSettings
from ragauge.engines.store import MemoryStore
from ragauge.errors import UserError
from ragauge.measure.protocols.stream import requests
from ragauge.methods.base.stored import read_apart
from ragauge.report.items.reuse import stream
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_stream
from tiny_models import tiny_prompt


def measured(out, material, *options):
    sizes = [
        "--requests",
        "8",
        "--questions",
        "2",
        "--documents",
        "2",
        "--new-tokens",
        "2",
        "--allow-load",
    ]
    assert main(["stream", *material, *sizes, *options, "--out", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize("store", ["disk", "memory"])
def test_documents_that_came_before_are_found(store, material, tmp_path):
    names = "naive,naive_reuse,superposition,prefix_tree,bm25"
    result = measured(tmp_path / "x.json", material, "--methods", names, "--store", store)
    assert [one["variant"] for one in result["streams"]] == names.split(",")
    naive, reuse, _, tree, ranker = result["streams"]
    assert naive["hit_rate"] is None
    preamble = max(one["stored_bytes"] or 0 for one in (naive, tree))  # the tree has its own store
    assert reuse["stored_bytes"] > 2 * preamble
    # a store begins empty
    assert reuse["requests"][0]["found"] == tree["requests"][0]["found"] == 0
    # the best document: no other is read apart
    assert {row["found"] for row in ranker["requests"]} == {0, 1}
    assert 0 < tree["hit_rate"] <= reuse["hit_rate"] < 1  # a prefix is found in its order alone
    assert all(row["first_token_s"] > 0 for one in result["streams"] for row in one["requests"])
    assert (reuse["summary"]["requests"], reuse["probes"]) == (8, 2)
    assert result["protocol"]["corpus_documents"] == 8
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]  # the store on disk is removed


def test_new_documents_take_the_place_of_old_ones():
    prompts = [tiny_prompt([3 + i] * 6, seed=i) for i in range(60)]
    corpus = [ids for prompt in prompts for ids in prompt.documents]
    of = {"methods": ["naive"], "dataset": "x", "documents": 2, "requests": 300}
    still, grown = (
        [
            [corpus.index(ids) for ids in prompt.documents]
            for prompt in requests(prompts, settings, seed=3)
        ]
        for settings in (StreamSettings(**of, exponent=1.2), StreamSettings(**of, growth=1))
    )
    draw = np.random.default_rng(3)
    weights = np.arange(1, 361, dtype=float) ** -1.2
    popularity = draw.permutation(weights / weights.sum())  # Zipf's law over a corpus that stays
    assert still == [draw.choice(360, 2, replace=False, p=popularity).tolist() for _ in range(300)]
    assert all(max(places) < 61 + t for t, places in enumerate(grown))  # none before it enters
    early, late = (
        sum(i < 61 for places in part for i in places) / 120 for part in (grown[:60], grown[-60:])
    )
    assert early > 3 * late > 0  # the first documents come less and less
    reused = [
        sum(i in np.ravel(one[:t]) for t in range(240, 300) for i in one[t])
        for one in (still, grown)
    ]
    assert reused[0] > 1.25 * reused[1]
    with pytest.raises(
        UserError, match="2 a request, but 60 questions have 360 in all, of which 418 enter later"
    ):
        requests(prompts, StreamSettings(**of, growth=1.4), seed=3)


def test_the_share_found_is_of_all_tokens(material, tmp_path):
    options = [
        "--methods",
        "naive,naive_reuse",
        "--documents=1",
        "--store=memory",
        "--requests=10",
        "--growth=0.5",
    ]
    naive, reuse = measured(tmp_path / "x.json", material, *options)["streams"]
    assert naive["hit_rate"] is None
    found = [row["found"] * row["found_of"] for row in reuse["requests"]]
    tokens = [row["found_of"] for row in reuse["requests"]]
    assert len(set(tokens)) > 1
    assert reuse["hit_rate"] == pytest.approx(sum(found) / sum(tokens))


def test_the_least_recently_used_leave_memory():
    lm = tiny_models.tiny_lm(tiny_models.LLAMA)
    prompt = tiny_prompt([6, 6, 6])
    lm.documents = store = MemoryStore("x", 1 << 30)
    read_apart(lm, prompt)
    store.max_bytes = store.bytes - 1
    with lm.tracing() as trace:
        # another document: the preamble was used now, the first document leaves
        read_apart(lm, tiny_prompt([5]))
        read_apart(lm, prompt)
    assert store.bytes <= store.max_bytes
    read = [call.loading_s is not None for call in trace if call.stage == "documents"]
    assert read[:2] == [False, False]
    lm.documents = None


def test_the_item_has_hits_waits_and_the_break_even_reuse(tmp_path):
    ends = {"naive": (2.0, 2.0), "naive_reuse": (5.0, 1.0), "prompt_cache": (2.5, 2.0)}
    write_stream(tmp_path, ends, unsupported={"cfic": "no long document"})
    table = stream.table(Runs(tmp_path))
    value = table.set_index(["variant", "quantity"])["measured"]
    assert value["naive_reuse", "break_even_reuses"] == 3  # 5 + 3 * 1 is 4 * 2
    assert value["naive_reuse", "hit_rate"] == 0.5
    assert value["naive_reuse", "first_token_p50_s"] == pytest.approx(3.0)
    notes = table.set_index(["variant", "quantity"])["note"]
    assert notes["prompt_cache", "break_even_reuses"].startswith("never")
    assert "no long document" in notes["cfic", "first_token_p50_s"]
    assert (
        notes["naive_reuse", "missed_s"]
        == notes["naive_reuse", "break_even_reuses"]
        == "of 2 probes"
    )
    waits, means = stream.draw(table).axes
    assert waits.get_lines()
    assert [5.0, 3.0] in [list(line.get_ydata())[:2] for line in means.get_lines()]


def test_the_item_names_a_servers_cache_in_place_of_a_store(tmp_path):
    served = {
        "protocol": {
            "dataset": "nq_open",
            "store": "disk",
            "device": "server",
            "cache": "warm",
            "documents": 5,
        }
    }
    write_stream(tmp_path, {"naive": (2.0, 1.0)}, **served)
    table = stream.table(Runs(tmp_path))
    assert {*zip(table["store"], table["store_gb"], strict=True)} == {("server", "")}
    note = table.set_index("quantity")["note"]["first_token_p50_s"]
    assert note.startswith("5 documents a request of ?, the server's own cache, warm on ")


def test_requests_that_failed_and_the_number_of_probes_are_stated(tmp_path):
    write_stream(tmp_path, {"naive": (2.0, 2.0), "naive_reuse": (5.0, 1.0)})
    path = tmp_path / f"stream/nq_open/{MODEL}.json"
    measured = json.loads(path.read_text())
    naive, reuse = measured["streams"]
    reuse |= {
        "requests": [*reuse["requests"], {"failure": "no answer", "found": None}],
        "failed": 1,
        "probes": 1,
    }
    naive |= {"summary": {}, "failed": 2}
    path.write_text(json.dumps(measured))
    table = stream.table(Runs(tmp_path)).set_index(["variant", "quantity"])
    waits = table.loc["naive_reuse", "first_token_p95_s"]
    missed = table.loc["naive_reuse", "missed_s"]
    assert (waits["n"], missed["n"], missed["note"]) == (2, 1, "of 1 probe")
    assert waits["note"].endswith("; 1 of 3 requests failed and have no times")
    assert (
        table.loc["naive", "first_token_p50_s"]["note"]
        == "2 of 2 requests failed and have no times"
    )
