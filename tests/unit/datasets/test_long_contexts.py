"""LongBench v2 and HELMET's RAG part: official records, prompts word for word, official metrics."""

import json

import pytest

import tiny_models
from json_lines import write_lines
from ragauge.datasets.base import loader
from ragauge.errors import UserError
from ragauge.methods.prompts import PromptStyle, build_prompt


def choice_record(number, **changes):
    return {
        "_id": f"id{number}",
        "domain": "Single-Document QA",
        "sub_domain": "Financial",
        "difficulty": ("easy", "hard")[number % 2],
        "length": ("short", "medium", "long")[number % 3],
        "question": f" Who {{input}} wrote {number}? ",
        **{f"choice_{c}": f"choice {c} of {number}\n" for c in "ABCD"},
        "answer": "ABCD"[number % 4],
        "context": f"\nIt is written {number}.  ",
        **changes,
    }


def passage(word):
    return {"id": word, "title": f"T {word}", "text": f"On {word}. {{demos}}"}


def rag_record(number, count=3, **changes):
    return {
        "id": f"q{number}",
        "question": f"who is {number}",
        "answers": [f"A{number}", "me"],
        "ctxs": [passage(f"{number}-{i}") for i in range(count)],
        "s_pop": 10**number,
        **changes,
    }


def shown(dataset, example):
    """The words of a prompt in a template without words of its own in front."""
    style = PromptStyle(dataset.instruction, "plain")
    documents = [(d.title, d.text) for d in example.documents]
    prompt = build_prompt(example.question, documents, style, tiny_models.byte_tokenizer())
    text = prompt.text
    return "".join([text.preamble, *text.documents, text.query, text.task])


def test_longbench_v2_asks_as_the_official_code_does(tmp_path):
    records = [choice_record(number) for number in range(12)]
    dataset = loader.make("longbench_v2")
    template = (
        "Please read the following text and answer the question below.\n\n<text>\n$DOC$\n</text>\n\n"
        "What is the correct answer to this question: $Q$\nChoices:\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n"
        '(D) $C_D$\n\nFormat your response as follows: "The correct answer is (insert answer here)".'
    )
    examples = list(dataset.read(write_lines(tmp_path / "d.jsonl", records)))
    for record, example in zip(records, examples, strict=True):
        names = {"$DOC$": "context", "$Q$": "question"} | {
            f"$C_{c}$": f"choice_{c}" for c in "ABCD"
        }
        expected = template
        for mark, name in names.items():
            expected = expected.replace(mark, record[name].strip())
        assert shown(dataset, example).removesuffix("\nAnswer:") == expected
        assert example.answers == (record["answer"],)
    assert dataset.max_new_tokens == 128


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"difficulty": "easy"}, [0, 2, 4, 6, 8, 10]),
        ({"length": "long"}, [2, 5, 8, 11]),
        ({"difficulty": "hard", "length": "short"}, [3, 9]),
    ],
)
def test_longbench_v2_by_difficulty_and_length(tmp_path, options, numbers):
    path = write_lines(tmp_path / "d.jsonl", [choice_record(number) for number in range(12)])
    found = loader.load("longbench_v2", data=path, **options)
    assert [example.key for example in found] == [f"id{number}" for number in numbers]
    array = tmp_path / "data.json"  # the official file
    array.write_text(json.dumps([choice_record(number) for number in range(12)], indent=1))
    assert loader.load("longbench_v2", data=array, **options) == found
    for wrong in (3, "Hard"):
        path = write_lines(tmp_path / "d.jsonl", [choice_record(0, length=wrong, difficulty=wrong)])
        with pytest.raises(UserError, match=r"d.jsonl:1: field '(difficulty|length)' must be"):
            loader.load("longbench_v2", data=path, **options)


@pytest.mark.parametrize("with_demos", [False, True])
def test_helmet_asks_as_the_official_code_does(tmp_path, with_demos):
    solved = [rag_record(n, 2) for n in (7, 7, 8, 9)]  # a question once for each place of gold
    demos = str(write_lines(tmp_path / "demos.jsonl", solved)) if with_demos else None
    dataset = loader.make("helmet_rag", demos=demos)
    path = write_lines(tmp_path / "d.jsonl", [rag_record(n % 2) for n in range(4)])
    examples = list(dataset.read(path))
    assert len({example.key for example in examples}) == 4
    form = "Document (Title: {title}): {text}"
    shots = "".join(
        "\n\n".join(form.format(**c) for c in d["ctxs"])
        + f"\n\nQuestion: {d['question']}\nAnswer: {d['answers'][0]}\n\n"
        for d in (solved[0], solved[2])
    )
    for number, example in enumerate(examples):
        record = rag_record(number % 2)
        context = "\n\n".join(form.format(**c) for c in record["ctxs"])
        assert shown(dataset, example) == (
            "Use the given documents to write a concise and short answer to the question. Write your "
            "answer in the following format:\nAnswer: [answer]\n\n"
            f"{shots * with_demos}{context}\n\nQuestion: {record['question']}\nAnswer:"
        )
    assert dataset.max_new_tokens == 20


def test_helmet_chooses_rare_subjects(tmp_path):
    path = write_lines(tmp_path / "d.jsonl", [rag_record(n) for n in range(6)])
    rare = loader.load("helmet_rag", data=path, popularity=3.0)
    assert [example.answers[0] for example in rare] == ["A0", "A1", "A2"]  # 10^3 is not below
    path = write_lines(tmp_path / "d.jsonl", [rag_record(1, s_pop="many")])
    with pytest.raises(UserError, match=r"d.jsonl:1: field 's_pop'"):
        loader.load("helmet_rag", data=path, popularity=3.0)
