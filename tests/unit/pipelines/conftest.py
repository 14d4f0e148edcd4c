"""The database that tests of indexes and retrievers share."""

import pytest

import tiny_database
from ragauge.pipelines.database import embed
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.indexes.hnsw import Hnsw
from ragauge.pipelines.retrieval.index import Index
from ragauge.pipelines.retrieval.retriever import Retriever

SHARDS = 3
RECIPES = {
    "ivf": tiny_database.INDEX,
    "graph": Hnsw(m=8, ef_construction=40, ef_search=32),
    "products": Hnsw(m=8, ef_construction=40, metric="inner_product"),
    "two_shards": Hnsw(m=8, ef_construction=40, shards=2),
    "filled": Hnsw(m=8, ef_construction=40, filled=3_000),
    "filled_ivf": tiny_database.INDEX.model_copy(update={"filled": 5_000}),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A database of three shards with an index of each recipe, in parts as well; it was moved after
    it was made.
    """
    home = tmp_path_factory.mktemp("database")
    corpus = tiny_database.write_corpus(home / "c.jsonl", 120)
    recipe = tiny_database.recipe(corpus, tiny_database.write_tokenizer(home / "tokenizer"), SHARDS)
    tiny_database.build_chunks(home / "made", recipe)
    for shard in range(SHARDS):
        embed.build_embeddings(home / "made", shard, tiny_database.Choice())
    for label, made in RECIPES.items():
        tiny_database.build_index(home / "made", label, made, parts=made.shards or SHARDS)
    return (home / "made").rename(home / "db")


@pytest.fixture(scope="session")
def database(folder):
    return Database(folder)


@pytest.fixture
def retriever(database):
    return Retriever(database, Index(database, "ivf"), tiny_database.CountEncoder())


@pytest.fixture(params=["ivf", "graph", "products", "two_shards", "filled"])
def label(request):
    return str(request.param)


@pytest.fixture
def recipe(label):
    return RECIPES[label]
