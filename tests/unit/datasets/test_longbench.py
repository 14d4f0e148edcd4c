"""LongBench and wiki_long: official records, official prompts, and prompts that lose their middle."""

import json

import pytest

import tiny_models
from json_lines import write_lines
from ragauge.assets import resolver
from ragauge.datasets._wiki import GoldPlace, WikiQuestion
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Stretch
from ragauge.datasets.base.examples import read_examples, write_examples
from ragauge.datasets.base.wikipedia import Article, Section
from ragauge.datasets.wiki_long import article_text, gold_section
from ragauge.errors import UserError
from ragauge.methods.prompts import PromptStyle, Source, build_prompt, cut_middle
from ragauge.metrics.base import normalise

SAMPLES = {"narrativeqa": 14, "qasper": 5, "multifieldqa_en": 4, "hotpotqa": 8, "musique": 4}
LENGTHS = {"narrativeqa": 128, "qasper": 128, "multifieldqa_en": 64, "hotpotqa": 32, "musique": 32}
TEXT = "".join(f"Sentence {i} is here. " for i in range(50))


def record(**changes):
    return {"input": "who?", "context": "It was I.", "answers": ["I", "me"], "_id": "x1", **changes}


def write(folder, *records):
    return write_lines(folder / "data.jsonl", records)


@pytest.mark.parametrize("task", SAMPLES)
def test_samples(task, shared_data):
    examples = loader.load(f"longbench_{task}", data=shared_data / "longbench" / f"{task}.jsonl.gz")
    assert len(examples) == SAMPLES[task]
    assert all(len(e.documents) == 1 and e.gold == (0,) and e.answers for e in examples)
    assert loader.make(f"longbench_{task}").max_new_tokens == LENGTHS[task]


@pytest.mark.parametrize(("name", "value"), [("dataset", "qasper"), ("language", "zh")])
def test_a_record_of_another_task_or_language_is_refused(tmp_path, name, value):
    own = {"dataset": "musique_e", "language": "en"}
    path = write(tmp_path, record(**own), record(**{**own, name: value, "_id": "x2"}))
    with pytest.raises(UserError, match=f"data.jsonl:2: field '{name}' must be .*not '{value}'"):
        loader.load("longbench_musique", data=path)
    assert len(loader.load("longbench_musique", data=path, limit=1)) == 1


# ---- prompts


def prompt_of(instruction, context=None):
    style = PromptStyle(instruction, "chat", context=context)
    return build_prompt("who is it", [("", TEXT)], style, tiny_models.byte_tokenizer())


def shown(prompt):
    return str(tiny_models.byte_tokenizer().decode(prompt.plain(prompt.documents)))


@pytest.mark.parametrize("name", [*(f"longbench_{task}" for task in SAMPLES), "wiki_long"])
def test_a_prompt_is_the_official_one_word_for_word(name):
    official = loader.make(name).preamble
    turn = [
        {
            "role": "user",
            "content": official.replace("{context}", TEXT).replace("{input}", "who is it"),
        }
    ]
    expected = tiny_models.byte_tokenizer().apply_chat_template(
        turn, tokenize=False, add_generation_prompt=True
    )
    assert shown(prompt_of(official)) == expected
    assert official.count("{context}") == official.count("{input}") == 1


def test_a_prompt_beyond_the_context_loses_its_middle():
    instruction = "Read this. {context}\n\nNow: {input}"
    whole = prompt_of(instruction)
    cut = prompt_of(instruction, context=300)
    assert 290 <= cut.total_tokens <= 300
    assert cut.truncated == len(whole.documents[0]) - len(cut.documents[0])
    assert shown(whole).startswith(shown(cut)[:140])
    assert shown(whole).endswith(shown(cut)[-140:])
    assert (whole.truncated, whole.sources) == (0, cut.sources)
    assert prompt_of(instruction, context=len(shown(whole)) + 10).truncated == 0


def test_a_question_that_fills_the_context_is_refused():
    with pytest.raises(UserError, match=r"the question alone takes \d+ of the prompt's 30 tokens"):
        prompt_of("Read this. {context}\n\nNow: {input}", context=30)


@pytest.mark.parametrize(("head", "tail"), [(10, 10), (0, 7), (7, 0), (40, 3), (3, 40)])
def test_stretches_are_where_they_say(head, tail):
    sources = [
        Source(0, "First", "Ünïcödé. " * 3),
        Source(1, "", "It is second. "),
        Source(2, "T", "Third one."),
    ]
    tokenizer = tiny_models.byte_tokenizer()
    kept, dropped = cut_middle(sources, tokenizer, head, tail)
    total = sum(len(tokenizer(s.shown, add_special_tokens=False)["input_ids"]) for s in sources)
    assert dropped == total - head - tail
    for stretch in kept:
        whole = sources[stretch.document].text
        assert whole[stretch.offset : stretch.offset + len(stretch.text)] == stretch.text
        assert stretch.text.strip()
    assert [s.document for s in kept] == sorted(s.document for s in kept)


# ---- wiki_long


def test_an_article_is_its_sections_below_their_headings():
    article = Article(
        "A", (Section("", "Lead."), Section("History", "It was.\nIt is."), Section("Empty", ""))
    )
    assert article_text(article) == "Lead.\n\nHistory\n\nIt was.\nIt is.\n\nEmpty"


def test_every_gold_section_holds_an_answer(tmp_path):
    try:
        resolver.resolve("wikipedia-sample")
    except UserError as error:
        pytest.skip(f"needs the Wikipedia sample: {error}")
    examples = loader.load("wiki_long")
    assert len(examples) >= 120
    for example in examples:
        [section] = example.gold_stretches
        text = normalise(example.documents[0].text[section.start : section.stop])
        assert any(normalise(answer) in text for answer in example.answers), example.key


# ---- gold sections

ARTICLE = Article(
    "Ada",
    (
        Section("", "Ada was born."),
        Section("Life", ""),
        Section("Work", "An Engine."),
        Section("Work", "Notes."),
    ),
)


def asked(section, answer):
    return WikiQuestion("q", "what?", (answer,), (GoldPlace("Ada", section, ""),))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (asked("", "born"), "Ada was born."),
        (asked("Work", "the engine"), "An Engine."),
        (asked("Work", "notes"), "Notes."),
    ],
)
def test_the_gold_section_is_where_the_articles_text_has_it(question, text):
    start, stop = gold_section(ARTICLE, question)
    assert article_text(ARTICLE)[start:stop] == text


def long_record():
    return {
        "id": "q",
        "question": "who?",
        "title": "Ada",
        "context": "It was I.",
        "answers": ["I"],
        "section_start": 3,
        "section_stop": 9,
    }


def test_a_gold_section_is_read_written_and_read_again(tmp_path):
    [example] = loader.load("wiki_long", data=write(tmp_path, long_record()))
    assert example.gold_stretches == (Stretch(0, 3, 9),)
    examples = [*loader.load("longbench_qasper", data=write(tmp_path, record())), example]
    written = tmp_path / "e"
    write_examples(written, examples)
    assert read_examples(written) == examples
    written.write_text(
        json.dumps({**json.loads(written.read_text().split("\n")[0]), "documents": [{"text": "x"}]})
    )
    with pytest.raises(UserError, match=r"documents\.0\.title"):
        read_examples(written)
    unknown = {k: v for k, v in long_record().items() if not k.startswith("section")}
    [without] = loader.load("wiki_long", data=write(tmp_path, unknown))
    assert without.gold_stretches == ()
