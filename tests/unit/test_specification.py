"""What stands beside a pipeline's records of the options that made them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_database as tiny
from ragauge.errors import UserError
from ragauge.generation.settings import PipelineSettings
from ragauge.generation.specification import index_facts, specify
from ragauge.retrieval.index import index_folder
from ragauge.retrieval.settings import DatabaseSettings

ENGINE = {"dtype": "float32", "device": "cpu", "threads": None, "cores": None}
INDEXES = {
    "ivf": {"nlist": 8, "pq_bytes": 8, "nprobe": 4, "iterations": 2},
    "graph": {"type": "hnsw", "ef_search": 32},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("indexes")
    recipe = tiny.recipe(tiny.write_corpus(root / "c.jsonl"), tiny.write_tokenizer(root / "tokenizer"), 2)
    made = DatabaseSettings(indexes=INDEXES).indexes
    tiny.build(root / "db", recipe, "ivf", made["ivf"])
    tiny.build_index(root / "db", "graph", made["graph"])
    return root / "db"


@pytest.mark.parametrize(("label", "kind", "nprobe"), [("ivf", "ivf_pq", 4), ("graph", "hnsw", 32)])
def test_an_index_stands_with_its_type_its_recipe_and_its_own_nprobe(
    folder: Path, label: str, kind: str, nprobe: int
) -> None:
    facts = index_facts(index_folder(folder, label))
    assert (facts.label, facts.type, facts.nprobe, facts.filled) == (label, kind, nprobe, None)
    assert facts.settings.items() >= {k: v for k, v in INDEXES[label].items() if k != "type"}.items()
    assert facts.settings["metric"] == "l2"
    assert facts.vectors
    told = specify(PipelineSettings(schedule="retro"), model="m", database="d", index=facts, engine=ENGINE)
    assert (told.pipeline["nprobe"], told.pipeline["model"], told.pipeline["neighbours"]) == (nprobe, "m", 2)
    stated = PipelineSettings(schedule="piperag", nprobe="hide")
    told = specify(stated, model="m", database="d", index=facts, engine=ENGINE)
    assert (told.pipeline["nprobe"], told.schedule.stale) == ("hide", True)


def test_a_schedule_that_asks_nothing_has_no_index(folder: Path) -> None:
    facts = index_facts(index_folder(folder, "ivf"))
    told = specify(PipelineSettings(schedule="random"), model="m", database="d", index=facts, engine=ENGINE)
    assert told.index is told.pipeline["nprobe"] is None
    assert told.schedule.model_dump() == {
        "reads_neighbours": True,
        "asks_index": False,
        "every_window": True,
        "stale": False,
    }


def test_a_folder_that_is_no_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing/merged/manifest.json: cannot be read as the manifest of an index"):
        index_facts(tmp_path / "nothing")
