"""Quality and wait over the length of the context, from invented records."""

import json
import statistics

import pytest
import yaml

from item_tables import line, shown, table
from synthetic_run import DOCUMENT, write_variant

METHODS = {"naive": 8.0, "bm25": 1.0, "naive_reuse": 2.0}
SIZES = {"needles_1k": 5, "needles_2k": 10}
CONFIG = yaml.safe_load("""
run: lengths
models: {smollm2-135m-instruct: {}}
datasets:
  needles_1k: {dataset: ruler, options: {task: needle_multikey, tokens: 1024, documents: 5}}
  needles_2k: {dataset: ruler, options: {task: needle_multikey, tokens: 2048, documents: 10}}
methods: {naive: {}, bm25: {}, naive_reuse: {}}
""")


@pytest.fixture
def lengths(tmp_path):
    """Three methods at two lengths, and one on a data set that has no length."""
    for label, documents in SIZES.items():
        for method, seconds in METHODS.items():
            right = [True] * (8 - documents // 5) + [False] * (4 + documents // 5) + [None]
            options = {"documents": documents, "first_token_s": seconds * documents}
            write_variant(tmp_path, method, method, right, dataset="ruler", **options)
        options = json.dumps({"dataset_options": CONFIG["datasets"][label]["options"]})[1:-1]
        (tmp_path / "answers" / "ruler").rename(tmp_path / "answers" / label)
        for path in (tmp_path / "answers" / label).rglob("*.meta.json"):
            path.write_text(path.read_text().replace('"dataset_options": {}', options))
    write_variant(tmp_path, "naive", "naive", [True] * 4, first_token_s=1.0)
    return tmp_path


def test_quality_and_wait_stand_at_the_measured_length(lengths):
    found = table("length", lengths, CONFIG)
    assert set(found["dataset"]) == set(SIZES)
    for label, documents in SIZES.items():
        # the synthetic question i has one document that is longer by 10 i tokens
        tokens = statistics.median(documents * DOCUMENT + 10 * i for i in range(12))
        for method, seconds in METHODS.items():
            keys = {"dataset": label, "variant": method, "state": "documents"}
            row = line(found, quantity="quality", **keys)
            assert row["tokens"] == tokens
            assert row["task"] == "needle_multikey"
            assert row["measured"] == pytest.approx((8 - documents // 5) / 13)
            assert row["n"] == 13  # a failed question is wrong
            wait = line(found, quantity="first_token_s", **keys)
            waited = seconds * documents
            assert wait["measured"] == pytest.approx(waited, rel=0.2)


def test_the_figure_has_both_quantities_of_every_variant(lengths):
    text = shown("length", table("length", lengths, CONFIG))
    for part in ("needle_multikey", "first token (s)", "quality", "tokens of documents", *METHODS):
        assert part in text
