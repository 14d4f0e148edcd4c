"""Our encoder gives sentence-transformers' embeddings on the real all-MiniLM-L6-v2."""

import numpy as np
import pytest

from ragauge.assets import resolver
from ragauge.datasets.base.loader import load
from ragauge.methods.rankers.dense import Encoder


@pytest.mark.network
def test_minilm_equals_sentence_transformers(shared_data):
    library = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers to compare with"
    )
    [example] = load(
        "nq_open",
        data=shared_data / "nq_open/nq-open-20_total_documents_gold_at_0.jsonl.gz",
        limit=1,
    )
    texts = [document.text for document in example.documents]
    texts += [example.question, " ".join(texts[:4])]  # a short one, and one beyond the 256 tokens
    folder = resolver.resolve("minilm")
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(
        texts, show_progress_bar=False
    )
    np.testing.assert_allclose(Encoder(folder).encode(texts), expected, atol=1e-6)
    half = Encoder(folder, dtype="bfloat16").encode(texts)
    assert 0.9998 < (half * expected).sum(axis=1).min() < 1 - 1e-6, "it is computed in bfloat16"
