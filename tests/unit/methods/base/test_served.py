"""Encoders and rerankers behind a server, sound ones and others."""

import json
import random

import numpy as np
import pytest

from endpoints import Reply, entries, served
from ragauge.engines.served.http import JsonServer
from ragauge.errors import UserError
from ragauge.methods.base.making import make
from ragauge.methods.base.served import BATCH, Served
from ragauge.methods.rankers import cross_encoder, dense
from tables import cases

TEXTS = [f"text {number}" for number in range(2 * BATCH + 5)]


def vector(text):
    """A vector of a text's own."""
    draw = random.Random(text)
    return [draw.gauss(0, 1) for _ in range(8)]


def normalised(texts):
    vectors = np.array([vector(text) for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def relevance(query, text):
    return random.Random(query + text).random()


def embeddings(body):
    rows = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
    random.Random(0).shuffle(rows)
    return Reply(json.dumps({"object": "list", "data": rows, "model": body["model"]}).encode())


def as_vllm(body):
    rows = [
        {"index": i, "document": {"text": text}, "relevance_score": relevance(body["query"], text)}
        for i, text in enumerate(body["documents"])
    ]
    return Reply(json.dumps({"id": "1", "results": rows[::-1]}).encode())


def as_tei(body):
    """Without `texts`, or with more than it takes, it refuses."""
    if "texts" not in body:
        return Reply(b"Failed to deserialize the JSON body: missing field `texts`", status=422)
    if len(body["texts"]) > BATCH:
        return Reply(b'{"error": "batch size 33 > maximum allowed batch size 32"}', status=422)
    scores = [relevance(body["query"], text) for text in body["texts"]]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return Reply(json.dumps([{"index": i, "score": scores[i]} for i in order]).encode())


def server(url, **options):
    return Served(JsonServer(url, attempts=2, pause_s=0.0, **options), "m")


def test_embeddings_are_in_the_order_of_the_texts():
    with served(whole=embeddings) as endpoint:
        found = server(endpoint.url, key="secret").embed(TEXTS)
    np.testing.assert_allclose(found, normalised(TEXTS), atol=1e-6)
    assert {request["path"] for request in endpoint.requests} == {"/v1/embeddings"}
    assert {request["headers"]["Authorization"] for request in endpoint.requests} == {
        "Bearer secret"
    }
    assert max(len(request["body"]["input"]) for request in endpoint.requests) == BATCH


@pytest.mark.parametrize("reply", [as_vllm, as_tei])
@pytest.mark.parametrize("base", ["/v1", ""])
def test_documents_are_scored_in_their_order(reply, base):
    with served(whole=reply) as endpoint:
        url = endpoint.url.removesuffix("/v1") + base
        model = server(url)
        for query in ("one?", "two?"):
            expected = [relevance(query, text) for text in TEXTS]
            np.testing.assert_allclose(model.scores(query, TEXTS), expected, rtol=1e-6)
    assert {request["path"] for request in endpoint.requests} == {f"{base}/rerank"}
    refused = sum("texts" not in request["body"] for request in endpoint.requests)
    assert refused == (1 if reply is as_tei else 6)


@pytest.mark.parametrize(
    ("results", "words"),
    cases("""
[{index: 0, relevance_score: 1}] -> 1 entries in the reply, not one for each of 2
[{index: 0, relevance_score: 1}, {index: 1, relevance_score: 1}, {index: 2, relevance_score: 1}] ->
  3 entries
[{index: 0, relevance_score: 1}, {index: 0, relevance_score: 1}] ->
  2 entries in the reply, not one for each
[{index: 0, relevance_score: 1}, {index: 7, relevance_score: 1}] -> 2 entries
[{index: 0, relevance_score: 1}, {index: 1, relevance_score: .nan}] -> finite
[{index: 0, relevance_score: 1}, {index: 1, relevance_score: .inf}] -> finite
[{index: 0, relevance_score: 1}, {index: 1, relevance_score: null}] -> finite
[{index: 0, relevance_score: 1}, {index: 1, relevance_score: high}] -> high
[{index: 0, relevance_score: 1}, {index: 1, logit: 1}] -> results.1
none -> results
"""),
)
def test_a_reply_that_is_not_a_score_for_each_document_is_refused(results, words):
    with (
        served([Reply(json.dumps({"results": results}).encode())]) as endpoint,
        pytest.raises(UserError, match=words) as raised,
    ):
        server(endpoint.url).scores("?", ["a", "b"])
    assert all("documents" in request["body"] for request in endpoint.requests), "no TEI server"
    assert endpoint.url in str(raised.value)
    assert "model m" in str(raised.value)


@pytest.mark.parametrize(
    ("vectors", "words"),
    cases("""
[[1.0, 2.0], [3.0]] -> inhomogeneous|shape
[[1.0, 2.0], [.nan, 1.0]] -> finite
[[1.0, 2.0], AAAA] -> AAAA|shape
[[1.0, 2.0]] -> 1 entries
"""),
)
def test_a_reply_that_is_not_an_embedding_for_each_text_is_refused(vectors, words):
    with (
        served([entries("data", "embedding", vectors)]) as endpoint,
        pytest.raises(UserError, match=words),
    ):
        server(endpoint.url).embed(["a", "b"])


def test_embeddings_of_another_dimension_are_refused():
    sizes = iter([8, 8, 6])

    def reply(body):
        return entries("data", "embedding", [[1.0] * next(sizes)] * len(body["input"]))

    with served(whole=reply) as endpoint:
        model = server(endpoint.url)
        model.embed(["a"], query=True)
        model.embed(["b"])
        with pytest.raises(UserError, match=r"\[6, 8\]"):
            model.embed(["c"])


def test_sources_name_their_own_servers(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://reader/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "reader-key")
    monkeypatch.setenv("RAGAUGE_RERANKER_BASE_URL", "http://reranker")
    for load in (dense.load_encoder, cross_encoder.load_cross_encoder):
        load.cache_clear()
    encoder = dense.load_encoder("openai:embed")
    assert (encoder.model, encoder.server.url) == ("embed", "http://reader/v1")
    reranker = cross_encoder.load_cross_encoder("openai:rank")
    assert (reranker.server.url, reranker.server.key) == ("http://reranker", None)
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(UserError, match="OPENAI_BASE_URL: is not set; openai:other"):
        dense.load_encoder("openai:other")


def test_methods_rank_by_a_servers_embeddings(monkeypatch):
    from house_article import long_lm, prompt_of
    from ragauge.engines.protocol import Limits

    lm = long_lm()
    prompt = prompt_of(*(("", f"Tea number {i}.") for i in range(5)))
    with served(whole=embeddings) as endpoint:
        monkeypatch.setenv("RAGAUGE_ENCODER_BASE_URL", endpoint.url)
        method = make("dense", encoder="openai:ranked-by-this", top_k=2)
        assert (method.assets(), method.local_assets()) == (("openai:ranked-by-this",), [])
        answer = method.answer(lm, method.prepare(lm, prompt), prompt, Limits(2))
    vectors = normalised([prompt.question, *prompt.document_texts])
    np.testing.assert_allclose(answer.saliency, vectors[1:] @ vectors[0], rtol=1e-4, atol=1e-6)
