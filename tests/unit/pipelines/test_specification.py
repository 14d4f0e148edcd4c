"""Metadata of pipeline records."""

import json

import pytest

import tiny_database as tiny
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.index import index_folder
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import (
    PipelineSpecification,
    describe_index,
    read_index_facts,
    specify_pipeline,
)

INDEXES = {
    "ivf": {"nlist": 8, "pq_bytes": 8, "nprobe": 4, "iterations": 2},
    "graph": {"type": "hnsw", "ef_search": 32},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("indexes")
    recipe = tiny.recipe(
        tiny.write_corpus(root / "c.jsonl"), tiny.write_tokenizer(root / "tokenizer"), 2
    )
    made = DatabaseSettings(indexes=INDEXES).indexes
    tiny.build(root / "db", recipe, "ivf", made["ivf"])
    tiny.build_index(root / "db", "graph", made["graph"])
    return root / "db"


@pytest.mark.parametrize(("label", "kind", "nprobe"), [("ivf", "ivf_pq", 4), ("graph", "hnsw", 32)])
def test_an_index_stands_with_its_type_its_recipe_and_its_own_nprobe(folder, label, kind, nprobe):
    facts = read_index_facts(index_folder(folder, label))
    assert (facts.label, facts.type, facts.nprobe, facts.filled) == (label, kind, nprobe, None)
    assert (
        facts.settings.items() >= {k: v for k, v in INDEXES[label].items() if k != "type"}.items()
    )
    assert facts.settings["metric"] == "l2"
    assert facts.vectors
    specification = specify_pipeline(
        PipelineSettings(schedule="retro"), model="m", database="d", index=facts
    )
    settings = specification.pipeline
    assert (settings.nprobe, settings.model, settings.neighbours) == (nprobe, "m", 2)
    stated = PipelineSettings(schedule="piperag", task="generate", nprobe="hide")
    assert specify_pipeline(stated, model="m", database="d", index=facts).pipeline.nprobe == "hide"


def test_a_search_without_an_nprobe_has_the_configurations_not_that_of_the_time_of_merging(
    folder,
):
    configured = describe_index("ivf", {**INDEXES["ivf"], "nprobe": 6})
    facts = read_index_facts(index_folder(folder, "ivf"), configured)
    on_disk = read_index_facts(index_folder(folder, "ivf"))
    assert (facts.nprobe, facts.vectors) == (6, on_disk.vectors)


@pytest.mark.parametrize(
    ("settings", "facts", "is_same"),
    [
        # access, cores, and how many there are
        ({"cores": "1", "limit": 9, "server": ["node:1"]}, {}, True),
        ({"neighbours": 3}, {}, False),
        ({"exclude": "article"}, {}, False),
        ({}, {"seed": 1}, False),
        ({}, {"index_sha256": "0"}, False),
        ({}, {"code": "0"}, False),
    ],
)
def test_the_digest_covers_all_that_records_depend_on(settings, facts, is_same):
    plain, other = (
        specify_pipeline(
            PipelineSettings(schedule="retro", **given), model="m", database="d", index=None, **more
        )
        for given, more in (({}, {}), (settings, facts))
    )
    assert (plain.digest == other.digest) == is_same
    assert PipelineSpecification.model_validate(json.loads(json.dumps(other.model_dump()))) == other


@pytest.mark.parametrize(
    "where", [{"server": ["node:1"]}, {"cores": "1"}, {"retrieval_cores": "1"}]
)
def test_times_depend_on_cores_and_servers(where):
    timed = {"schedule": "retro", "task": "generate"}
    plain, other = (PipelineSettings(**timed, **given) for given in ({}, where))
    assert (
        len(
            {
                specify_pipeline(one, model="m", database="d", index=None).digest
                for one in (plain, other)
            }
        )
        == 2
    )


def test_a_folder_that_is_no_index_is_named(tmp_path):
    with pytest.raises(
        UserError, match=r"nothing/merged/manifest.json: cannot be read: No such file"
    ):
        read_index_facts(tmp_path / "nothing")
