"""What a run left behind: methods and options from specifications and the configuration."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from ragauge.config.loading import parse
from ragauge.cost import shapes
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.results import measures
from ragauge.results.runs import Runs, known_names
from synthetic_run import MODEL, specification, write_meta, write_variant


def the_variant(folder):
    parsed = parse({"run": "t", "models": {MODEL: {}}, "datasets": {"nq_open": {}}}, "t")
    (variant,) = Runs(folder, parsed).run
    return variant


def test_a_model_is_the_papers_by_its_name_in_catalog_or_hub_not_by_a_folders():
    assert (
        known_names("hf:mosaicml/mpt-7b-instruct")
        == known_names("mpt-7b-instruct")
        == ["mpt-7b-instruct"]
    )
    assert known_names("openelm-3b-instruct") == ["openelm-3b-instruct"]
    for source in (
        "path:/models/mpt-7b-instruct",
        "models/mpt-7b-instruct",
        "hf:somebody/mpt-7b-instruct",
    ):
        assert known_names(source) == []


def test_options_precision_and_data_set_come_from_the_specification(tmp_path):
    write_variant(tmp_path, "x", "superposition", [True], params={"top_k": 4}, dataset="musique")
    variant = the_variant(tmp_path)
    assert (variant.method, variant.param("top_k"), variant.param("saliency")) == (
        "superposition",
        4,
        "bayesian",
    )
    assert (str(variant.precision), variant.device, variant.is_multi_hop) == (
        "bfloat16",
        "cpu",
        True,
    )
    assert variant.is_superposition()
    assert not variant.is_superposition(positions="left_aligned")


def test_sizes_of_the_decoder_come_from_the_meta_file_or_are_refused_with_their_place(tmp_path):
    path = records.meta_path(write_variant(tmp_path, "x", "naive", [True]))
    meta = json.loads(path.read_bytes())
    sizes = asdict(shapes.named(shapes.names()[0]))
    path.write_text(json.dumps({**meta, "shape": sizes}))
    assert the_variant(tmp_path).shape == shapes.named(shapes.names()[0])
    for damaged, problem in (
        ({**sizes, "vocab": "many"}, "vocab: Input should be a valid integer"),
        ({**sizes, "depth": 3}, "depth: Unexpected keyword argument"),
        ({"vocab": 3}, "family: Field required"),
    ):
        path.write_text(json.dumps({**meta, "shape": damaged}))
        with pytest.raises(UserError, match=f"x.meta.json: shape: {problem}"):
            _ = the_variant(tmp_path).shape


def test_records_with_a_damaged_specification_count_as_missing(tmp_path):
    path = records.meta_path(write_variant(tmp_path, "x", "naive", [True]))
    path.write_text(json.dumps({"specification": {"method": "naive"}}))
    runs = Runs(tmp_path)
    assert not runs.run
    assert "holds no valid specification: options: Field required" in str(runs.variants[0].missing)


def test_a_data_set_that_nobody_knows_is_scored_by_no_metric(tmp_path):
    write_variant(tmp_path, "x", "naive", [True], dataset="nq_oben")
    runs = Runs(tmp_path)
    assert not runs.run
    assert str(runs.variants[0].missing).startswith(
        "unknown data set 'nq_oben'; did you mean 'nq_open'? known: "
    )
    with pytest.raises(UserError, match="data set nq_oben: unknown data set 'nq_oben'"):
        runs.metrics("nq_oben")
    assert runs.metrics("nq_open")[0] == "best_subspan_em"


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({}, None),
        ({"dataset_options": {"documents": 1, "seed": 0, "of_another_version": 2}}, None),
        ({"dataset_options": {"documents": 4}}, "options of the data set"),
        ({"max_new_tokens": 2}, "max_new_tokens"),
        ({"options": {"top_k": 2}}, "options"),
        ({"method": "tfidf"}, "method"),
        ({"model": "path:/somewhere/else"}, "model"),
        ({"model": f"path:/moved/{MODEL}"}, None),
        ({"dataset": "musique"}, "data set"),
    ],
)
def test_records_of_other_settings_are_left_out(tmp_path, recorded, reason, capfd):
    path = write_variant(tmp_path, "mine", "bm25", [True], params={"top_k": 1})
    made = specification("bm25", {"top_k": 1}, "nq_open", MODEL)
    write_meta(path, made.model_copy(update=recorded))
    config = {
        "run": "t",
        "models": {MODEL: {}},
        "datasets": {"nq_open": {"options": {"documents": 1}}},
        "methods": {"mine": {"method": "bm25", "top_k": 1}},
    }
    runs = Runs(tmp_path, parse(config, "t"))
    [variant] = runs.variants
    why = f"made with another {reason}" if reason else None
    assert (variant.missing, bool(runs.run)) == (why, reason is None)
    line = f"{tmp_path}: records left out: nq_open/{MODEL}/mine ({why})\n" if why else ""
    assert capfd.readouterr().err == line


def test_no_id_stands_in_a_table_as_a_formula(monkeypatch):
    ids = ["=cmd|' /C calc'!A0", "+1", "-2", "@sum", "\t=1", "\r=1", "q=1", "1-2"]
    variant = SimpleNamespace(dataset="d", model="m", name="v", primary_metric="em")
    runs = SimpleNamespace(run=[variant])
    monkeypatch.setattr(measures, "scored", lambda *_: dict.fromkeys(ids, 1.0))
    shown = list(measures.by_question(runs)["question"])
    assert shown == [f"'{key}" for key in ids[:6]] + ids[6:]
