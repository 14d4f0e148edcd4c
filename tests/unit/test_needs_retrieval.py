"""What databases and pipelines take: their formulas by hand, and a pipeline's calls beside those of a real one."""

from __future__ import annotations

from typing import Any

import pytest

import tiny_models
from ragauge.assets import entries
from ragauge.cost.shapes import named
from ragauge.evaluation import needs
from ragauge.evaluation.needs_retrieval import database, pipeline_seconds
from ragauge.experiment.loading import parse
from ragauge.generation.cost import calls
from ragauge.generation.evaluation import EvaluationStretch
from ragauge.generation.pipeline import Pipeline
from ragauge.generation.retrofit.joint import JointDecoding
from ragauge.generation.settings import PipelineSettings
from ragauge.retrieval.hub import CORPORA, HubCorpus
from ragauge.retrieval.settings import DatabaseSettings
from retro_parts import ExactRetriever, job, tokens

SMALL = HubCorpus("hf:some/texts", 1000, 446, 2.0)  # 100 tokens a document


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "wikipedia", SMALL)


def settings(**changes: Any) -> DatabaseSettings:
    data = {"run": "t", "models": {"llama-2-7b": {}}, "datasets": {"nq_open": {}}, "methods": {"naive": {}}}
    return parse({**data, "databases": {"d": {"corpus": "wikipedia", **changes}}}, "t.yaml").databases["d"]


@pytest.mark.usefixtures("small")
def test_a_database_by_hand() -> None:
    made = database(
        settings(shards=4, indexes={"ivf": {}, "half": {"shards": 2}, "filled": {"filled": 10**6, "parts": 2}})
    )
    assert made is not None
    assert made.documents == 1000
    assert made.chunks == pytest.approx(1000 * 100 / 64 + 500)
    assert made.core_hours == pytest.approx(made.chunks / 50 / 3600)
    assert made.chunks_gb == pytest.approx((2 * 100_000 + 512_000) / 1e9)
    assert made.embeddings_gb == pytest.approx(2 * 384 * made.chunks / 1e9)
    assert made.indexes_gb == pytest.approx((2 * 72 * 1.5 * made.chunks + 3 * 72 * 10**6) / 1e9)
    assert made.disk_gb == made.chunks_gb + made.embeddings_gb + made.indexes_gb


@pytest.mark.usefixtures("small")
def test_the_first_documents_are_streamed_by_every_shard() -> None:
    made, whole = database(settings(limit=100, shards=4)), database(settings(shards=4))
    assert made is not None
    assert whole is not None
    assert made.chunks == pytest.approx(whole.chunks / 10)
    assert (made.download_gb, whole.download_gb) == (pytest.approx(4 * 0.2), 2.0)


def test_c4_has_the_papers_three_billion_chunks() -> None:
    made = database(settings(corpus="c4-en"))
    assert made is not None
    assert made.chunks == pytest.approx(3e9, rel=0.05)


def test_a_corpus_that_is_not_known_before_it_is_read_has_no_numbers() -> None:
    assert database(settings(corpus="wikipedia-sample")) is None


@pytest.mark.parametrize("kind", ["no_retrieval", "retrieve_once", "random", "retro_plus", "piperag"])
@pytest.mark.parametrize("task", ["perplexity", "generate"])
def test_a_pipelines_calls_are_those_of_a_real_one(kind: Any, task: Any) -> None:
    retriever = ExactRetriever([tokens(300, 2), tokens(400, 4)])
    record = Pipeline(JointDecoding(tiny_models.tiny_lm()), job(kind, 32, task), retriever, retriever).record(
        EvaluationStretch("0", 0, tuple(tokens(150, 7)))
    )
    real = [call for call in record.trace if call["stage"] in ("read", "decode")]
    entry = PipelineSettings(schedule=kind, task=task, interval=32, tokens=150)
    planned = list(calls(entry))
    read = sum(sum(call.lengths) * call.steps for call in planned if call.stage != "neighbours")
    assert read - sum(sum(call["lengths"]) * call.get("steps", 1) for call in real) in (0, 1)  # the last is not read
    neighbours = sum(call["stage"].startswith("neighbours") for call in record.trace)
    windows = sum(call.stage == "neighbours" for call in planned)
    assert min(1, windows) <= neighbours <= windows  # what an earlier window found is not read again


def test_generation_is_bound_by_memory_and_timed_more_often_than_it_is_kept() -> None:
    shape = named("smollm2-360m")
    layer = 2 * 960 * 960 + 2 * 960 * 320 + 3 * 960 * 2560  # q and o, k and v of a third of the heads, the MLP
    entry = PipelineSettings(schedule="no_retrieval", task="generate", tokens=1024, trials=5)
    weights = 4 * (32 * layer + 49_152 * 960)  # bytes in float32
    seconds = pipeline_seconds(entry, shape, "float32", needs.GPU)
    assert seconds == pytest.approx(6 * 960 * weights / 2.039e12, rel=0.05)  # besides keys and values
    once = pipeline_seconds(entry.model_copy(update={"trials": 1}), shape, "float32", needs.GPU)
    assert seconds == pytest.approx(6 * once)


@pytest.mark.usefixtures("small")
def test_tables_hold_databases_and_pipelines() -> None:
    text = needs.markdown(
        parse(
            {
                "run": "t",
                "models": {"smollm2-360m": {"device": "cuda", "dtype": "float32", "datasets": []}},
                "datasets": {"nq_open": {}},
                "methods": {"naive": {}},
                "databases": {"d": {"corpus": "wikipedia"}, "sample": {}},
                "pipelines": {"retro": {"limit": 10}, "random": {}},
            },
            "t.yaml",
        )
    )
    assert "| `d` | `wikipedia` | 1,000 | 0.0 | 2.0 |" in text
    assert "| `sample` | `wikipedia-sample` |  |" in text
    assert "| `d` | `perplexity` | `retro` | 1 | 10 | 0.18 to 0.18 | 0.0 |" in text
    assert "| `d` | `perplexity` | `random` | 1 | all |  |  |" in text
    assert "| corpora, which are streamed | 2.0 |" in text
    assert "2 pipelines, 0.0 GPU hours at the least besides searching." in text


def test_the_shipped_encoders_have_a_width() -> None:
    sized = {name for name, entry in entries().items() if entry.kind == "encoder" and entry.width}
    assert {"minilm", "contriever", "bge-large-en-v1.5", "llm-embedder"} <= sized
    assert all(entries()[name].download_gb for name in sized)
