"""CFIC's baselines as methods: what their evidence is, how much of it, and what they do with bad
documents.
"""

from dataclasses import replace

import pytest

import tiny_models
from house_article import ARTICLE, INSTRUCTION, answered, check_verbatim, long_lm, prompt_of
from json_lines import write_lines
from ragauge.cli._main import main
from ragauge.engines.lm import LM
from ragauge.engines.protocol import ANSWERING
from ragauge.engines.shape_lm import ShapeLM
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.methods.base import grounding, making
from ragauge.methods.prompts import Source
from ragauge.metrics import base as metrics
from ragauge.testing import write_checkpoint
from reuse_anchors import LIMITS, fresh

BM25 = {"ranker": "bm25"}


def texts(answer):
    return [piece.text for piece in answer.evidence or ()]


# ---- chunks


@pytest.mark.parametrize("chunking", ["sliding_window", "paragraph"])
@pytest.mark.parametrize("ranker", ["dense", "bm25", "shortest"])
@pytest.mark.parametrize("volume", [1, 60, 256])
def test_chunks_are_verbatim_and_within_the_volume(chunking, ranker, volume, encoder):
    prompt = prompt_of(("A", ARTICLE), ("", ARTICLE.replace("House", "Barn")))
    options = {
        "chunking": chunking,
        "ranker": ranker,
        "volume": volume,
        "words": 12,
        "encoder": encoder,
    }
    answer = answered("chunks", prompt, **options)
    check_verbatim(answer, prompt)
    longest = 23  # of a sentence, a token a byte
    assert sum(map(len, texts(answer))) <= max(volume, longest)
    assert sum(map(len, texts(answer))) > min(volume, 256) - 2 * longest or volume == 1
    assert answer.kept == tuple(sorted({piece.document for piece in answer.evidence or ()}))


# ---- free extraction


def written(monkeypatch, text):
    """Have the model write this as its evidence."""

    def generate(lm, *context):
        return lm.tokenizer(text, add_special_tokens=False)["input_ids"]

    monkeypatch.setattr(grounding, "generate", generate)


def test_what_was_written_is_placed_where_it_stands_and_nowhere_else(
    monkeypatch,
):
    written(monkeypatch, " House 3 has 8 cats. House 3 has 9 cats.\nThe end.")
    answer = answered("free_extraction", prompt_of(("A", "Nothing."), ("", ARTICLE)))
    start = ARTICLE.index("House 3 has 8")
    end = ARTICLE.index("The end.")
    assert [(p.document, p.start, p.stop) for p in answer.evidence or ()] == [
        (1, start, start + 19),
        (None, None, None),
        (1, end, end + 8),
    ]
    assert texts(answer) == ["House 3 has 8 cats.", "House 3 has 9 cats.", "The end."]
    assert answer.kept == (1,)


@pytest.mark.parametrize("context", [4096, 900])
def test_an_engine_without_caches_writes_the_same_evidence_after_one_prompt(context):
    class Plain(LM):
        capabilities = ANSWERING

    cached = long_lm(context=context)
    method = making.make("free_extraction", volume=40)
    prompt = prompt_of()
    plain = Plain(cached.decoder, cached.tokenizer)
    assert method.refusal(plain) is None
    with plain.tracing() as trace:
        found = fresh(plain, method, prompt)
    assert found == answered("free_extraction", prompt, cached, volume=40)
    assert texts(found)
    assert bool(found.truncated) == (context == 900)
    assert [call.stage for call in trace] == ["prompt", "decode", "prompt", "decode"]


# ---- the full article, the oracle


@pytest.mark.parametrize("documents", [[("", ARTICLE)], [("A", ARTICLE), ("B", ARTICLE)]])
@pytest.mark.parametrize("instruction", [INSTRUCTION, "Use these."])
def test_an_article_beyond_the_context_loses_its_middle(documents, instruction):
    prompt = prompt_of(*documents, instruction=instruction)
    answer = answered("full_article", prompt, long_lm(context=700))
    check_verbatim(answer, prompt)
    first = (answer.evidence or ())[0]
    last = (answer.evidence or ())[-1]
    assert (first.document, first.start) == (0, 0)
    assert (last.document, last.stop) == (len(documents) - 1, len(ARTICLE))
    total = sum(len(text) for _, text in documents)
    assert answer.truncated is not None
    # titles, and blanks at the cuts
    assert abs(total - sum(map(len, texts(answer))) - answer.truncated) < 8


def test_a_context_without_room_for_an_article_is_refused():
    with pytest.raises(
        UserError, match="the model's context of 50 tokens has no room for a document"
    ):
        answered("full_article", prompt_of(), long_lm(context=50))
    shaped = ShapeLM(replace(tiny_models.LLAMA, max_context=100))
    with pytest.raises(UserError, match="to cut them needs their text"):
        making.make("full_article").answer(shaped, None, prompt_of(), LIMITS)


def test_the_oracle_reads_the_gold_stretches_alone():
    start = ARTICLE.index("Notes")
    prompt = prompt_of(gold=(0,), gold_sources=[Source(0, "", ARTICLE[start:], start)])
    answer = answered("oracle", prompt)
    check_verbatim(answer, prompt)
    assert texts(answer) == ["Notes\n\nThe end."]
    whole = answered("oracle", prompt_of(gold=(0,)))
    assert (whole.evidence, whole.ids) == (None, answered("naive", prompt_of()).ids)


# ---- bad documents


@pytest.mark.parametrize("name", ["chunks", "free_extraction", "cfic"])
def test_a_document_without_a_sentence_is_refused(name):
    prompt = replace(prompt_of(), sources=(Source(0, "", " \n "),))
    with pytest.raises(UserError, match="the document has no sentence"):
        answered(name, prompt, **(BM25 if name == "chunks" else {}))


@pytest.mark.parametrize("name", ["chunks", "free_extraction", "cfic"])
def test_models_that_cannot_ground_are_refused(name):
    lm = long_lm()
    lm.tokenizer = None
    assert "tokenizer" in (making.make(name).refusal(lm) or "")
    assert name == "chunks" or "end-of-text" in (
        making.make(name).refusal(tiny_models.tiny_lm()) or ""
    )


# ---- records


def questions(tmp_path):
    """The options that name two questions on one article, and where what comes of them is written."""
    data = tmp_path / "wiki_long.jsonl"
    section = ARTICLE.index("House 9")
    lines = [
        {
            "id": f"q{i}",
            "question": f"Which is house {i}?",
            "title": "Houses",
            "context": ARTICLE,
            "answers": [f"{i * 7 % 13} cats"],
            **({"section_start": section, "section_stop": len(ARTICLE)} if i else {}),
        }
        for i in range(2)
    ]
    write_lines(data, lines)
    return f"--dataset wiki_long --data {data} --threads 1 --out {tmp_path / 'x.jsonl'}".split()


def run(tmp_path, name, *more, code=0):
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=2500)
    assert (
        main(["run", "--method", name, *questions(tmp_path), "--model", str(model), *more]) == code
    )
    return records.read(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("chunks", ["--set", "ranker=bm25"]),
        ("free_extraction", ["--set", "volume=20"]),
        ("full_article", []),
        ("oracle", []),
        ("cfic", ["--set", "d=20"]),
    ],
)
def test_records_hold_evidence_that_every_metric_reads(name, more, tmp_path):
    unplaced, placed = run(tmp_path, name, *more)
    for record in (unplaced, placed):
        assert (record.status, record.reason) == ("ok", None)
    assert unplaced.gold_stretches == []
    assert metrics.score("gold_section_recall", unplaced.model_dump()) is None
    dumped = placed.model_dump()
    assert dumped["evidence"]
    assert dumped["tokens"]["evidence"] == metrics.score("evidence_tokens", dumped) > 0
    assert metrics.score("evidence_verbatim", dumped) == 1.0 or name == "free_extraction"
    assert all(e["verbatim"] == (e["text"] in ARTICLE) for e in dumped["evidence"])
    if name in ("oracle", "full_article"):
        assert metrics.score("gold_section_recall", dumped) == 1.0
        assert metrics.score("answer_in_evidence", dumped) == 1.0
    else:
        assert metrics.score("gold_section_recall", dumped) in (0.0, 1.0)


def test_a_record_of_evidence_that_another_model_found_says_so(tmp_path, capsys):
    finder = write_checkpoint(
        tmp_path / "finder", max_position_embeddings=2500, intermediate_size=96
    )
    [alone, _] = run(tmp_path, "cfic", "--set", "d=20")
    assert alone.request.startswith("Below is an article, read the article")
    assert alone.request.endswith(
        f"{{article}}\nNow the article ends.\nSelect several sentences from the article "
        f"to answer my question.\nQuestion: {alone.question}"
    )
    [by_other, _] = run(tmp_path, "cfic", "--set", "d=20", "--finder", str(finder), "--overwrite")
    assert by_other.evidence != alone.evidence
    found = (records.read_meta(tmp_path / "x.jsonl") or {})["specification"]["finder"]
    assert (found["model"], len(found["model_sha256"])) == (str(finder), 64)
    for name, other, message in (
        ("cfic", "x", "--finder: unknown model 'x'"),
        ("naive", str(finder), "naive: does not search for evidence, so it cannot have a finder"),
    ):
        run(tmp_path, name, "--finder", other, "--overwrite", code=2)
        assert message in capsys.readouterr().err
