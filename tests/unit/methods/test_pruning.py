"""Text that is left out of a plain prompt by a small model: which, and what the prompt then is."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from house_article import INSTRUCTION, answered, long_lm, prompt_of
from ragauge.cost.flop import call_macs
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError
from ragauge.methods import sentence_pruning
from ragauge.methods.base import making, method
from ragauge.methods.rankers.cross_encoder import CrossEncoder
from ragauge.testing import write_checkpoint
from reuse_anchors import LIMITS, fresh
from tiny_models import cross_encoder, encoder

DOCUMENTS = (
    ("Ants", "Ants run fast. They do not fly. Nobody knows why.\n"),
    ("Bees", "Bees fly high!  Bees sting. Mr. Smith likes honey."),
    ("Cats", "Cats sleep long."),
)
PLAIN = "Read this."


@pytest.fixture(scope="module")
def rankers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rankers")
    return {
        "bm25": {"ranker": "bm25"},
        "dense": {"encoder": f"path:{encoder(folder / 'encoder')}"},
        "reranker": {"reranker": f"path:{cross_encoder(folder / 'pairs')}"},
    }


def shown(prompt, monkeypatch, **options):
    """The documents that were read, and their text as the prompt has it."""
    lm = long_lm()
    texts = []
    own = dict(
        zip(map(tuple, prompt.documents), prompt.text.documents if prompt.text else (), strict=True)
    )
    monkeypatch.setattr(
        sentence_pruning,
        "read_plain",
        lambda _e, _p, documents, _l: (
            texts.extend(d if isinstance(d, str) else own[tuple(d)] for d in documents) or []
        ),
    )
    method = making.make("sentence_pruning", **options)
    answer = fresh(lm, method, prompt)
    return answer.kept, "".join(texts)


@pytest.mark.parametrize("tokenization", ["whole", "segments"])
@pytest.mark.parametrize("instruction", [PLAIN, INSTRUCTION])
@pytest.mark.parametrize("name", ["bm25", "dense", "reranker"])
def test_a_threshold_of_0_is_the_ranked_prompt(name, instruction, tokenization, rankers):
    prompt = prompt_of(
        *DOCUMENTS, question="Do bees fly?", instruction=instruction, tokenization=tokenization
    )
    pruned = answered("sentence_pruning", prompt, top_k=2, threshold=0.0, **rankers[name])
    if name == "reranker":
        scores = CrossEncoder(Path(rankers[name]["reranker"][5:])).scores(
            prompt.question, prompt.document_texts
        )
        order = tuple(np.argsort(-scores, kind="stable").tolist()[:2])
        ids = method.read_plain(long_lm(), prompt, [prompt.documents[i] for i in order], LIMITS)
        assert (pruned.kept, pruned.ids) == (order, ids)
        return
    options = {"idf": "lucene"} if name == "bm25" else {"encoder": rankers[name]["encoder"]}
    ranked = answered(name, prompt, top_k=2, path_caching=False, **options)
    assert (pruned.kept, pruned.ids) == (ranked.kept, ranked.ids)


@pytest.mark.parametrize(
    ("threshold", "kept", "text"),
    [
        (0.01, (1, 0), "[Document](Title: Bees) Bees fly high!  Bees sting. Mr. Smith likes honey.\n"
                       "[Document](Title: Ants) They do not fly.\n\n"),
        (0.4, (1, 0), "[Document](Title: Bees) Bees fly high!\n[Document](Title: Ants) They do not fly.\n\n"),
        (0.5, (0,), "[Document](Title: Ants) They do not fly.\n\n"),
        (1.0, (), ""),
    ],
)  # fmt: skip
def test_sentences_with_the_questions_words_stay_behind_their_title(
    threshold, kept, text, monkeypatch
):
    """The title's words count for each of its sentences."""
    prompt = prompt_of(*DOCUMENTS, question="Do bees fly?", instruction=PLAIN)
    assert shown(prompt, monkeypatch, ranker="bm25", threshold=threshold) == (kept, text)


def test_a_cross_encoders_probability_decides(rankers, monkeypatch):
    prompt = prompt_of(("", "Bees fly high. Bees sting. Ants run."), question="Do bees fly?")
    model = CrossEncoder(Path(rankers["reranker"]["reranker"][5:]))
    sentences = ["Bees fly high. ", "Bees sting. ", "Ants run."]
    probabilities = [
        1 / (1 + np.exp(-model.scores(prompt.question, [s.strip()])[0])) for s in sentences
    ]
    least, middle, _ = sorted(probabilities)
    expected = "".join(
        s for s, p in zip(sentences, probabilities, strict=True) if p > least
    ).rstrip()
    threshold = float(least + middle) / 2
    assert shown(prompt, monkeypatch, threshold=threshold, **rankers["reranker"]) == (
        (0,),
        expected,
    )


def test_a_checkpoint_with_code_of_its_own_is_one_line(tmp_path):
    """As Provence's are, whose heads are in a file of the hub's."""
    source = cross_encoder(tmp_path / "provence")
    config = json.loads((tmp_path / "provence/config.json").read_text())
    config |= {"model_type": "Provence", "architectures": ["Provence"]}
    config["auto_map"] = {
        "AutoConfig": "modeling_provence.ProvenceConfig",
        "AutoModel": "modeling_provence.Provence",
    }
    (tmp_path / "provence/config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"^cross-encoder .*provence: cannot be loaded: ") as caught:
        answered("sentence_pruning", prompt_of(*DOCUMENTS), reranker=f"path:{source}")
    assert "\n" not in str(caught.value)


# ---- LongLLMLingua by another model


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    sizes = {"same": {}, "small": {"hidden_size": 16, "intermediate_size": 32}}
    return {
        name: f"path:{write_checkpoint(folder / name, **changes)}"
        for name, changes in sizes.items()
    }


@pytest.fixture(scope="module")
def reader(sources):
    return load_lm(sources["same"])


def compressed(lm, prompt, **options):
    """The answer of long_llmlingua, its trace, and the most bytes of keys and values."""
    method = making.make("long_llmlingua", **options)
    with lm.tracing() as trace:
        return (
            fresh(lm, method, prompt),
            trace,
            lm.peak_cache_bytes,
        )


@pytest.mark.parametrize("tokenization", ["whole", "segments"])
@pytest.mark.parametrize(
    "options", [{"rate": 1.0}, {"rate": 0.5}, {"rate": 0.5, "reorder": False}], ids=str
)
def test_the_same_model_as_auxiliary_makes_the_same_prompt(
    options,
    tokenization,
    reader,
    sources,
    monkeypatch,
):
    how = {"tokenization": tokenization, "tokenizer": reader.tokenizer}
    prompts = []
    respond = reader.respond
    prompt = prompt_of(*DOCUMENTS, instruction=PLAIN, **how)
    monkeypatch.setattr(
        reader, "respond", lambda ids, limits: prompts.append(ids) or respond(ids, limits)
    )
    alone, _, own_bytes = compressed(reader, prompt, **options)
    by_other, _, its_bytes = compressed(reader, prompt, auxiliary=sources["same"], **options)
    assert prompts[0] == prompts[1]
    assert (len(prompts[0]) < prompt.total_tokens) == (options["rate"] < 1)
    assert (by_other.ids, by_other.kept) == (alone.ids, alone.kept)
    assert by_other.saliency == pytest.approx(alone.saliency, abs=1e-4)
    assert its_bytes >= own_bytes


def test_the_auxiliarys_own_cost_counts_online(reader, sources):
    prompt = prompt_of(*DOCUMENTS, instruction=PLAIN, tokenizer=reader.tokenizer)
    shape = load_lm(sources["small"]).shape
    own, trace = (
        compressed(reader, prompt, rate=1.0, auxiliary=one)[1] for one in ("", sources["small"])
    )
    for one, other in zip(own, trace, strict=True):
        expected = (
            {"stage": "auxiliary", "macs": call_macs(one, shape)} if one.stage == "compress" else {}
        )
        assert replace(other, seconds=None) == replace(one, seconds=None, **expected)
    assert [call.offline for call in trace] == [False] * len(trace)
