"""What `ragauge cost` prints: the methods' own traces, on shapes alone."""

import json

import pytest

from ragauge.cost import tokens
from ragauge.cost.hardware import Precision
from ragauge.cost.report import cost_report
from ragauge.cost.shapes import named, with_context
from ragauge.engines import Limits, ShapeLM
from ragauge.errors import UserError
from ragauge.methods import make
from ragauge.prompts import Prompt


def _report(name, accounting="published", counts="nq_open", model="mpt-7b-instruct", **options):
    count = tokens.load(counts)
    shape = named(model)
    prompt = Prompt(**tokens.random_segments(count, shape.vocab))
    lm = ShapeLM(with_context(shape, count.total + 100), precision=Precision("bfloat16"))
    return cost_report(
        name,
        make(name, **options),
        make("naive"),
        lm,
        prompt,
        limits=Limits(1, ignore_stop=True),
        accounting=accounting,
    )


def test_what_is_prepared_is_costed_apart():
    report = _report("superposition", "total", top_k=1)
    assert report["flop"] + report["offline_flop"] == 2 * report["compute_cycles"]
    assert report["offline_kv_bytes"] == 2 * 32 * 4096 * (43 + 2834) * 2
    assert report["kv_bytes"] >= report["offline_kv_bytes"]
    naive = _report("naive", "total")
    assert naive["offline_flop"] == naive["offline_kv_bytes"] == 0
    assert naive["theoretical_speedup"] == 1.0


def test_a_report_is_json():
    report = _report("naive")
    read = json.loads(json.dumps(report))
    assert read["trace"] == [{"stage": "prompt", "lengths": [2914], "past": [0], "logits": [1]}]
    assert {**read, "trace": None} == {**report, "trace": None}


def test_caching_and_parallelism_change_cycles_and_not_the_total():
    plain = _report("superposition", "total", top_k=2)
    bare = _report("superposition", "total", top_k=2, path_caching=False, path_parallelization=False)
    assert plain["compute_cycles"] == bare["compute_cycles"]


def test_token_counts_from_a_file(tmp_path):
    file = tmp_path / "counts.json"
    file.write_text('{"preamble": 3, "documents": [5, 6], "query": 2, "task": 1}')
    assert tokens.load(str(file)) == tokens.TokenCounts(3, (5, 6), 2, 1)
    assert tokens.load("nq_open").total == 2914


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"preamble": 3, "documents": [5, 0], "query": 2, "task": 1}', r"documents\[1\]: a positive number"),
        ('{"preamble": 3, "documents": [], "query": 2, "task": 1}', "documents: a list"),
        ('{"preamble": 3, "documents": [5], "query": 2}', "task is missing"),
        ('{"preamble": 3, "docs": [5], "query": 2}', "unknown key 'docs'"),
        ("[1]", "a mapping"),
        ("{", "neither JSON nor YAML"),
    ],
)
def test_bad_token_counts_are_named(tmp_path, text, message):
    file = tmp_path / "counts.json"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        tokens.load(str(file))


def test_unknown_token_counts_name_the_choices():
    with pytest.raises(UserError, match="did you mean 'musique'"):
        tokens.load("musiqe")
