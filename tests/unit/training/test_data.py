"""CFIC's fine-tuning data: spans are whole sentences, questions are filtered, evaluation text stays
out.
"""

import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest

import tiny_models
from endpoints import Reply, says, served
from json_lines import write_lines
from ragauge.datasets.base.dataset import Document as Passage
from ragauge.datasets.base.dataset import Example
from ragauge.datasets.base.examples import write_examples
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row
from ragauge.errors import UserError
from ragauge.methods.cfic import CFIC
from ragauge.methods.evidence import sft
from ragauge.methods.evidence.chat import Endpoint, EndpointChat, EndpointError, LocalChat
from ragauge.methods.evidence.request import REQUESTS
from ragauge.methods.evidence.sft import SpanQuestion, TrainingDocument
from ragauge.methods.prompts import PromptStyle, build_prompt, unit_steps
from ragauge.methods.prompts.templates import token_ids, wrapper
from ragauge.pipelines.database.near_duplicates import near_duplicates
from ragauge.training import data
from sft_material import DAMAGED_REPLIES, Parrot, article, settings, write_corpus

TEXT = (
    "Heading\n\nThe lamp was lit in 1821. It burned whale oil, as most did.\n\n- a list item\n\n"
    + article(1)
)


# ---- documents and spans


def test_spans_are_prose_in_whole_sentences_and_drawn_alike_every_time():
    tokenizer = tiny_models.byte_tokenizer()
    document = TrainingDocument("a#0", "T", TEXT)
    drawn, again, other = (
        sft.draw_spans(document, tokenizer, 6, 3, seed=seed, splitter="sentencex")
        for seed in (0, 0, 1)
    )
    assert drawn == again != other
    assert len(drawn.spans) >= 5
    for span in drawn.spans:
        text = drawn.span_text(span)
        assert text.endswith(".")
        assert text.startswith(("The ", "It "))
        assert sft.FEWEST_SPAN_TOKENS <= len(text) <= sft.MOST_SPAN_TOKENS
    assert all(a.stop <= b.start for a, b in pairwise(drawn.spans))


# ---- the same words as at inference


@pytest.mark.parametrize("template", ["chat", "alpaca", "vicuna"])
def test_training_reads_what_the_method_reads(template):
    lm = tiny_models.tiny_lm(replace(tiny_models.LLAMA, max_context=4096, eos=(1,)))
    style = PromptStyle("{context}\n{input}", template)
    prompt = build_prompt("Who lit the lamp?", [("Lighthouse", TEXT)], style, lm.tokenizer)
    read = []
    extend = lm.extend
    lm.extend = lambda cache, rows, **o: (read.append([*rows[0].ids]), extend(cache, rows, **o))[1]  # type: ignore
    method = CFIC(top_k=1)
    state = method.prepare(lm, prompt)
    document = [token for row in read for token in row]
    read.clear()
    method.find(lm, state, prompt)
    start = TEXT.index("It burned")
    text = state[0].text
    span = SpanQuestion(start, TEXT.index("- a list"), "Who lit the lamp?")
    training = TrainingDocument("a#0", "Lighthouse", TEXT, (span,))
    encoded = sft.encode(training, lm.tokenizer, template, REQUESTS["paper"], 1, 4096, "sentencex")
    assert encoded.document == document
    [(request, response)] = encoded.requests
    assert request == read[0]
    sentence = next(s for s in text.sentences if s.start == start)
    assert response == [*text.ids[sentence.first : sentence.end], 1]
    assert lm.tokenizer.decode(response[:-1]).strip() == "It burned whale oil, as most did."


def test_a_request_that_is_too_long_is_left_out():
    spans = SpanQuestion(9, 35, "When was it?"), SpanQuestion(9, 35, "When? " * 90)
    document = TrainingDocument("a#0", "", TEXT, spans)
    tokenizer = tiny_models.byte_tokenizer()
    most = len(TEXT) + 400
    encoded = sft.encode(document, tokenizer, "chat", REQUESTS["paper"], 1, most, "sentencex")
    assert len(encoded.requests) == 1


# ---- questions


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("When was the lamp first lit?", None),
        ("", "empty"),
        ("???", "empty"),
        ("The lamp was lit in 1821", "no question mark"),
        ("Why lamp?", "too short or too long"),
        ("lamp " * 40 + "?", "too short or too long"),
        ("What does the passage say of the lamp?", "speaks of the text"),
        ("The lamp was first lit in 1821?", "copies the span"),
        ("What is the history of the lighthouse?", "asks for nothing that is in the span alone"),
    ],
)
def test_rubbish_is_named(question, why):
    assert sft.problem(question, "The lamp was first lit in 1821 by Ann.", "Lighthouse") == why


def test_a_local_model_is_asked_in_its_template_and_goes_on_from_the_cue():
    lm = tiny_models.tiny_lm(replace(tiny_models.LLAMA, eos=(1,)))
    title = "Beta"
    span = "The lamp was lit in 1821."
    [question] = sft.write_questions(LocalChat(lm, "chat"), [(title, span)])
    opening, task = (token_ids(lm.tokenizer, text) for text in wrapper("chat", lm.tokenizer))
    text = sft.REQUEST.format(title=title, text=span)
    ids = [*opening, *token_ids(lm.tokenizer, text), *task, *token_ids(lm.tokenizer, sft.CUE)]
    cache = lm.new_cache(len(ids) + sft.QUESTION_TOKENS)
    read = lm.extend(cache, [Row(ids, unit_steps(0, len(ids)))], stage="prompt", last_logits=True)
    alone = lm.generate(
        cache, read.last_logits[0], len(ids), Limits(max_new_tokens=sft.QUESTION_TOKENS)
    )
    assert lm.tokenizer.decode(alone, skip_special_tokens=True) == question


def test_an_endpoint_that_fails_now_and_then_leaves_a_span_without_question():
    with served([says("Who lit the lamp?"), Reply(b"", 503)]) as server:
        chat = EndpointChat(Endpoint(server.url, model="m", attempts=1))
        questions = sft.write_questions(chat, [("A", "up"), ("B", "down")])
        assert questions == ["Who lit the lamp?", None]
        with pytest.raises(EndpointError, match="HTTP 503"):
            sft.write_questions(chat, [("A", "down")])


# ---- near-duplicates


def grams(words, size):
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def contains(text, piece, threshold):
    """Whether 100 words of a text have enough of a piece's n-grams, by comparing all of them."""
    size = 3 if len(piece) <= 50 else 5
    sought = grams(piece, size)
    shared = max(
        len(sought & grams(text[start : start + 100], size))
        for start in range(max(1, len(text) - 99))
    )
    return len(sought) >= 7 and shared >= max(7, 2 * threshold / (1 + threshold) * len(sought))


@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.9])
def test_random_texts_are_found_as_by_comparing_everything(threshold):
    draw = random.Random(0)
    found = []
    for _ in range(150):
        piece = draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randrange(1, 100))
        changes = draw.choice([0.0, 0.03, 0.1, 0.2])
        edited = [draw.choice("xyz") if draw.random() < changes else word for word in piece]
        cut = draw.randrange(len(piece))
        apart = draw.choice([0, 0, 30, 120])  # words between the parts
        parts = [draw.choices("abcdefgh", k=n) for n in (draw.randrange(150), apart, 50)]
        text = [*parts[0], *edited[:cut], *parts[1], *edited[cut:], *parts[2]]
        found.append(near_duplicates([" ".join(piece)], threshold)(" ".join(text)))
        assert found[-1] == contains(text, piece, threshold)
    assert 20 < sum(found) < 130


def evaluation_file(path, *texts):
    documents = [Passage("", text) for text in texts]
    write_examples(
        path, [Example(f"q{i}", "Who?", (d,), ("A",), (0,)) for i, d in enumerate(documents)]
    )
    return path


def test_evaluation_articles_are_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr(data.QuestionWriter, "model", lambda self: Parrot())
    file = evaluation_file(tmp_path / "e.jsonl", article(3), article(4)[:900], article(5))
    with pytest.raises(UserError, match=r"found, 1000 requested; .*8 articles") as error:
        data.build(settings(tmp_path, documents=1000).data(), {file: 2}, tmp_path / "lacking")
    assert not (tmp_path / "lacking/train.jsonl").exists()
    found = int(str(error.value).split()[2])
    data.build(settings(tmp_path, documents=found + 1).data(), {file: 2}, tmp_path / "data")
    manifest = json.loads((tmp_path / "data/manifest.json").read_bytes())
    held_out = {"Town 3", "Town 4"}
    assert set(manifest["held_out_articles"]) == held_out
    assert {d.title for d in data.read(tmp_path / "data/held_out.jsonl")} == held_out
    trained = {d.title for d in data.read(tmp_path / "data/train.jsonl")}
    assert trained == {f"Town {i}" for i in range(10)} - held_out
    counts = manifest["counts"]
    expected = {"long_articles": 10, "train_articles": 8, "evaluation_documents": 2}
    assert counts.items() >= expected.items()
    assert counts["asked"] == counts["kept"] + sum(manifest["questions_left_out"].values())
    assert counts["kept"] >= counts["train_questions"] + counts["held_out_questions"] > 0


def test_corpora_give_equal_parts_and_no_more_articles_than_allowed(tmp_path):
    many = write_corpus(tmp_path / "many.jsonl", 10)
    few = tmp_path / "few.jsonl"
    texts = [article(n) for n in range(50, 53)]
    write_lines(few, ({"title": "", "text": text} for text in texts))
    given = settings(tmp_path, corpora=[str(many), str(few)], document_tokens=5000).data()
    drawn = [d.corpus for d in data.passages(data.long_articles(given), given, False)]
    assert drawn[:6].count("many.jsonl") == drawn[:6].count("few.jsonl") == 3
    assert drawn[6:] == ["many.jsonl"] * 7
    fewer = data.long_articles(given.model_copy(update={"corpus_articles": 2}))
    assert sorted(a.key for a in fewer) == [
        f"{n}.jsonl/{i}" for n in ("few", "many") for i in (0, 1)
    ]


# ---- a run that is cut off


def test_a_cut_off_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    given = settings(tmp_path, documents=12).data()
    whole = Parrot()
    monkeypatch.setattr(data.QuestionWriter, "model", lambda self: whole)
    data.build(given, {}, tmp_path / "whole")
    again = 0
    for after in range(whole.calls):
        writer = Parrot(gives_up_after=1)
        monkeypatch.setattr(data.QuestionWriter, "model", lambda self, writer=writer: writer)
        with pytest.raises(KeyboardInterrupt):
            data.build(given, {}, tmp_path / "cut")
        again += writer.calls
        partial = tmp_path / "cut/questions.partial"
        if after == 1:
            kept = partial.read_bytes()
            keys = [json.dumps(json.loads(line)[0]) for line in kept.splitlines() if line]
            damaged = [line.replace('"key"', key) for key in keys for line in DAMAGED_REPLIES]
            assert damaged
            partial.write_bytes(kept + "\n".join(["", *damaged, '["torn']).encode())
        if again == whole.calls - 1:
            break
    monkeypatch.setattr(data.QuestionWriter, "model", lambda self: Parrot())
    data.build(given, {}, tmp_path / "cut")
    for name in (data.TRAIN, data.HELD_OUT):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not partial.exists()
    assert again == whole.calls - 1  # no question was asked twice


@pytest.mark.parametrize("spans", ["[]", '[{"start": 2, "stop": 9, "question": "q?"}]'])
def test_damaged_data_name_their_line(tmp_path, spans):
    (tmp_path / "train.jsonl").write_text(
        f'{{"key": "a", "title": "", "text": "abc", "spans": {spans}}}\n'
    )
    with pytest.raises(UserError, match=r"train.jsonl:1: .*span"):
        data.read(tmp_path / "train.jsonl")
