"""Every index type: recall against exact search, parts equal to the whole, refused when damaged."""

import numpy as np
import pytest

from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.indexes.base.recipe import Together
from ragauge.pipelines.retrieval.index import Index
from ragauge.pipelines.retrieval.recall import exact_search, recall
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from tables import cases
from tiny_database import DIM, queries


def test_recall_rises_with_effort_to_what_is_stored(database, label, recipe):
    opened = Index(database, label)
    vectors = Vectors.open(database.folder, recipe)
    shards = range(len(vectors.embeddings))
    exact = exact_search(vectors, queries(40), 10, shards)[1]
    rows = [row for row in recall(opened, queries(40), exact) if row["k"] == 10]
    name = opened.recipe.NPROBE_KEY
    assert [row[name] for row in rows] == opened.nprobes
    results = [row["recall"] + row["drawn"] for row in rows]
    assert results[-1] > results[0] - 0.02
    assert results[-1] > {"ivf": 0.5, "filled": 0.9}.get(label, 0.95)


def test_parts_merge_to_the_whole(database, label, recipe):
    count = recipe.shards or len(database.shards)
    pieces = [Index(database, label, (n, count)) for n in range(count)]

    class Raw:
        def __init__(self, part):
            self.search = part.search_raw

    assert sum(map(len, pieces)) == len(Index(database, label))
    joined = Together([Raw(piece) for piece in pieces], recipe.largest_is_nearest)
    merged = joined.search(queries(40), 4, recipe.default_nprobe)
    whole = Index(database, label).search_raw(queries(40), 4, recipe.default_nprobe)
    np.testing.assert_array_equal(merged[0], whole[0])
    np.testing.assert_array_equal(np.sort(merged[1]), np.sort(whole[1]))


@pytest.mark.parametrize("label", ["graph", "products", "two_shards", "filled"])
def test_bytes_of_a_vector_are_what_the_files_have(database, label):
    """Of IVF the centroids would outweigh the codes of so few vectors."""
    opened = Index(database, label)
    size = sum(
        path.stat().st_size for path in opened.folder.iterdir() if path.name != "manifest.json"
    )
    assert size / len(opened) == pytest.approx(opened.recipe.vector_bytes(DIM), rel=0.15)


# --- configuration ---


def settings(**recipe):
    return DatabaseSettings.model_validate({"indexes": {"x": recipe}}).indexes["x"]


@pytest.mark.parametrize(
    ("recipe", "message"),
    cases(r"""
{type: hsnw} -> indexes\.x\.type: unknown index type 'hsnw'; did you mean 'hnsw'\? known: .*ivf_pq
{type: hnsw, nlist: 4} -> indexes\.x\.nlist: unknown key 'nlist'
{efsearch: 4, type: hnsw} -> indexes\.x\.efsearch: .*did you mean 'ef_search'
{type: hnsw, ef_search: 0} -> indexes\.x\.ef_search: must be greater than or equal to 1, not 0
{type: null} -> indexes\.x\.type: unknown index type None
{type: hnsw, parts: 9} -> indexes\.x\.parts: 9; the database has 2 shards
"""),
)
def test_a_recipe_that_its_type_does_not_take_is_refused_at_its_place(recipe, message):
    with pytest.raises(UserError, match=rf"c\.yaml: databases\.d: {message}"):
        loading.parse_database({"indexes": {"x": recipe}}, "c.yaml: databases.d")
