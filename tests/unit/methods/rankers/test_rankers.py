"""Rankers against their formulas, and on inputs that hold nothing to rank by."""

import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_models
from ragauge.errors import UnsupportedError, UserError
from ragauge.methods.rankers import bm25, dense, shortest, tfidf
from ragauge.methods.rankers.cross_encoder import CrossEncoder
from ragauge.pipelines.database.embed import OnnxEncoder
from ragauge.text import terms

DOCUMENTS = [
    "The first Nobel Prize in Physics was awarded in 1901 to Wilhelm Conrad Röntgen.",
    "A prize is a prize is a prize.",
    "Physics, physics and more physics; no award.",
    "Nothing to see here",
]


def lucene(query, documents, k1=1.5, b=0.75):
    """BM25 as its formula reads, with Lucene's idf."""
    words = [terms(d) for d in documents]
    mean = sum(map(len, words)) / len(words)

    def weight(word, document):
        tf = document.count(word)
        df = sum(word in d for d in words)
        idf = math.log(1 + (len(words) - df + 0.5) / (df + 0.5))
        return idf * tf / (tf + k1 * (1 - b + b * len(document) / mean)) if tf else 0.0

    return [sum(weight(w, d) for w in terms(query)) for d in words]


def rank_bm25(query, documents, words=terms):
    """rank_bm25's BM25Okapi (version 0.2.2), at its default epsilon of 0.25."""
    k1 = 1.5
    b = 0.75
    corpus = [words(d) for d in documents]
    average_length = sum(map(len, corpus)) / len(corpus)
    counts = {word: sum(word in d for d in corpus) for d in corpus for word in d}
    idf = {
        word: math.log(len(corpus) - freq + 0.5) - math.log(freq + 0.5)
        for word, freq in counts.items()
    }
    average_idf = sum(idf.values()) / max(1, len(idf))
    idf = {word: value if value >= 0 else 0.25 * average_idf for word, value in idf.items()}
    score = [0.0] * len(corpus)
    for q in words(query):
        for i, d in enumerate(corpus):
            freq = d.count(q)
            score[i] += (idf.get(q) or 0) * (
                freq * (k1 + 1) / (freq + k1 * (1 - b + b * len(d) / average_length))
            )
    return score


def test_words_between_white_space_keep_case_and_punctuation():
    documents = ["The prize.", "the prize", "A Prize", "Prize?"]
    expected = rank_bm25("Prize the", documents, words=str.split)
    assert bm25.rank("Prize the", documents, split="white_space") == pytest.approx(expected)
    assert not bm25.rank("nothing prize?", documents, split="white_space").any()


WORDS = {
    "The café of Zoe\u0308, o\ufb03ce 12.": "the café of zoë office 12",
    "Leucht\u00adturm": "leuchtturm",
    "यह किताब है। مُحَمَّد": "यह किताब है مُحَمَّد",
    "青石镇的灯塔？": "青石 石镇 镇的 的灯 灯塔",
    "Python入门 猫": "python 入门 猫",
    "灯台とタワー": "灯台 台と とタ タワ ワー",
    "등대는 어디": "등대 대는 어디",
    "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48": "\u0e17\u0e35 \u0e35\u0e48 \u0e48\u0e19 \u0e19\u0e35 \u0e35\u0e48",
}


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_words_are_folded_and_bigrams_where_no_blanks_part_them(text, words):
    assert terms(text) == words.split()


def test_a_corpus_is_searched_by_the_formula_of_the_library():
    """In English text; a query without words, which the library cannot score, scores zero."""
    import bm25s

    options = {"stopwords": "en", "token_pattern": r"(?u)\b\w+\b", "show_progress": False}
    words = bm25s.tokenize(DOCUMENTS, return_ids=False, **options)
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(words, show_progress=False)
    made = list(bm25.CorpusBM25([*DOCUMENTS]).scores(["physics prize of 1901", "the", "zebra"]))
    np.testing.assert_array_equal(
        made, [index.get_scores(["physics", "prize", "1901"]), np.zeros(4), np.zeros(4)]
    )


@given(st.lists(st.lists(st.sampled_from(["a", "b", "猫犬"]), max_size=6), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_the_control_puts_the_fewest_words_first_whatever_is_asked(documents):
    texts = [" ".join(words) for words in documents]
    scores = shortest.rank("which?", texts)
    assert list(scores) == [-len(words) for words in documents]
    assert list(shortest.rank("another a b", texts)) == list(scores)


@pytest.mark.parametrize(
    ("query", "right", "others"),
    [
        ("How is hepatitis A passed on?", "Hepatitis A is a virus.", ["Hepatitis B is a virus."]),
        ("What is new in v2.4?", "v2.4 has tabs", ["v2.6 has tabs", "v2 has 4 tabs"]),
        ("Who made C?", "C was made", ["C++ was made", "R was made", "C# was made"]),
        ("What works at 12.5 bar?", "at 12,5 bar", ["at 125 bar", "at 12 to 15 bar"]),
    ],
)
def test_a_corpus_is_searched_by_single_characters_and_whole_values(query, right, others):
    for texts in ([right, *others], [*others, right]):
        [scores] = bm25.CorpusBM25(texts).scores([query])
        assert texts[scores.argmax()] == right
        assert sorted(scores)[-1] > sorted(scores)[-2]


FORMULAS = {"lucene": lucene, "rank_bm25": rank_bm25}


@pytest.mark.parametrize("idf", FORMULAS)
@settings(max_examples=40, deadline=None)
@given(
    query=st.text("ab é.,", max_size=12),
    documents=st.lists(st.text("abc é.,", max_size=20), min_size=1, max_size=6),
)
def test_bm25_is_its_formula(idf, query, documents):
    if any(terms(d) for d in documents):
        expected = FORMULAS[idf](query, documents)
        np.testing.assert_allclose(
            bm25.rank(query, documents, idf=idf), expected, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("rank", [bm25.rank, tfidf.rank])
@pytest.mark.parametrize(
    ("query", "documents"),
    [("", DOCUMENTS), ("?!", DOCUMENTS), ("zebra", DOCUMENTS), ("physics", ["...", "!"])],
)
def test_nothing_in_common_scores_zero_and_is_warned_of(
    rank,
    query,
    documents,
    caplog,
):
    np.testing.assert_array_equal(rank(query, documents), np.zeros(len(documents)))
    [warning] = caplog.messages
    assert f"no word of {query!r} occurs in its documents, which stay in their order" in warning


def test_tfidf_is_the_cosine_of_sklearn_vectors():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    query = "first prize in physics"
    vectorizer = TfidfVectorizer().fit(DOCUMENTS)
    expected = cosine_similarity(vectorizer.transform([query]), vectorizer.transform(DOCUMENTS))[0]
    np.testing.assert_allclose(tfidf.rank(query, DOCUMENTS), expected, rtol=1e-12)


@pytest.fixture(scope="module")
def folder(encoder):
    return Path(encoder.removeprefix("path:"))


def test_other_poolings_are_refused_and_flags_of_older_folders_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "1_Pooling"}]))
    (tmp_path / "1_Pooling").mkdir()
    config = tmp_path / "1_Pooling" / "config.json"
    several = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    for refused in (
        {},
        {"pooling_mode": "max"},
        several,
        {"pooling_mode": "mean", "include_prompt": False},
    ):
        config.write_text(json.dumps(refused))
        with pytest.raises(UnsupportedError, match="not mean or first-token pooling"):
            dense.Encoder(tmp_path)
    flags = {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    config.write_text(json.dumps(flags))
    assert dense.Encoder(tmp_path).pooling == "cls"


def write_encoder(folder, rng):
    """A random encoder with random settings; returns whether sentence-transformers can run them."""
    from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

    torch.manual_seed(rng.randrange(100))
    kinds = [(BertConfig, BertModel), (RobertaConfig, RobertaModel)]
    config_class, model_class = rng.choice(kinds)
    positions = rng.choice([34, 66])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 260, "max_position_embeddings": positions}
    padding = {"pad_token_id": 1} if config_class is RobertaConfig else {}
    model = model_class(config_class(**sizes, **padding, initializer_range=0.5))
    with torch.no_grad():  # lengths of embeddings differ, as real ones do
        model.encoder.layer[0].output.LayerNorm.weight.uniform_(0.2, 2.0)
    model.save_pretrained(folder)
    tiny_models.byte_tokenizer(chat=False).save_pretrained(folder)
    pooling = rng.choice(["cls", "mean"])
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] * rng.randrange(2)
    usable = positions - 2 * (config_class is RobertaConfig)
    longest = rng.choice([None, 12, usable, 500])
    settings = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(modules)
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode": pooling},
        "sentence_bert_config.json": {
            "max_seq_length": longest,
            "do_lower_case": rng.choice([True, False]),
        },
        "config_sentence_transformers.json": {
            "prompts": rng.choice([{}, {"query": "Who ", "document": "Text: "}]),
            "similarity_fn_name": rng.choice([None, "cosine", "dot"]),
        },
    }
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    for name, content in settings.items():
        (folder / name).write_text(json.dumps(content))
    return usable


@pytest.mark.parametrize("seed", range(12))
def test_random_settings_rank_as_in_sentence_transformers(tmp_path, seed):
    library = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers to compare with"
    )
    rng = random.Random(seed)
    usable = write_encoder(tmp_path, rng)
    reference = library.SentenceTransformer(str(tmp_path), device="cpu")
    reference.max_seq_length = min(reference.max_seq_length, usable)  # beyond it fails there
    texts = ["".join(rng.choices("aAbB cC", k=rng.randrange(1, 90))) for _ in range(12)]
    expected = reference.similarity(
        reference.encode_query(texts[:4]), reference.encode_document(texts)
    )
    encoder = dense.load_encoder(f"path:{tmp_path}")
    assert (encoder.similarity, encoder.max_tokens) == (
        reference.similarity_fn_name,
        reference.max_seq_length,
    )
    np.testing.assert_allclose(encoder.encode(texts), reference.encode_document(texts), atol=1e-5)
    ranked = encoder.embed(texts[:4], query=True) @ encoder.embed(texts).T
    np.testing.assert_allclose(ranked, expected, rtol=1e-4, atol=1e-4)


def test_an_exported_encoder_reads_lower_case(tmp_path):
    write_encoder(tmp_path, random.Random(0))
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    one, other = OnnxEncoder(f"path:{tmp_path}").encode(["AbC", "abc"])
    np.testing.assert_array_equal(one, other)
    reference = dense.load_encoder(f"path:{tmp_path}")
    np.testing.assert_allclose(one, reference.encode(["abc"])[0], atol=1e-5)


def test_a_cross_encoder_of_robertas_kind_reads_what_it_has_positions_for(tmp_path):
    from transformers import RobertaConfig, RobertaForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 260, "max_position_embeddings": 34}
    config = RobertaConfig(**sizes, pad_token_id=1, num_labels=1)
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    tiny_models.byte_tokenizer(chat=False).save_pretrained(tmp_path)
    model = CrossEncoder(tmp_path)
    assert model.max_tokens == 32
    assert np.isfinite(model.scores("who", ["a text of many letters " * 9])).all()


def test_another_similarity_is_refused_by_name(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "config_sentence_transformers.json"
    for stated in ('{"similarity_fn_name": "manhattan"}', '{"truncate_dim": 7}'):
        settings.write_text(stated)
        with pytest.raises(
            UnsupportedError, match=r"(manhattan|truncate_dim 7).*known: cosine and dot"
        ):
            dense.Encoder(tmp_path)
    settings.unlink()
    assert dense.Encoder(tmp_path).similarity == "dot"  # as Contriever, without such settings


def test_what_an_encoder_was_trained_with_is_in_the_catalog(folder, monkeypatch):
    monkeypatch.setattr("ragauge.assets.resolver.resolve", lambda name: folder)
    dense.load_encoder.cache_clear()
    bge = dense.load_encoder("bge-large-en-v1.5")
    plain = dense.load_encoder("path:/x")
    for name in (
        "BGE-large-en-v1.5",
        "hf:BAAI/bge-large-en-v1.5",
        "hf:BAAI/bge-large-en-v1.5@main",
    ):
        assert dense.load_encoder(name).query_prefix == bge.query_prefix
    dense.load_encoder.cache_clear()
    assert bge.query_prefix.startswith("Represent this sentence")
    assert bge.text_prefix == plain.query_prefix == plain.text_prefix == ""
    assert bge.encoding_macs(["physics"], query=True) > plain.encoding_macs(["physics"], query=True)


def test_a_folder_without_a_checkpoint_is_one_line(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded") as error:
        dense.Encoder(tmp_path)
    assert "\n" not in str(error.value)


def test_macs_are_what_torch_counts(folder):
    from torch.utils.flop_counter import FlopCounterMode

    encoder = dense.Encoder(folder)
    encoder.model.set_attn_implementation("eager")  # the counter misses sdpa on CPU
    with FlopCounterMode(display=False) as counter:
        encoder.encode([DOCUMENTS[0]])
    assert counter.get_total_flops() == 2 * encoder.encoding_macs([DOCUMENTS[0]])
