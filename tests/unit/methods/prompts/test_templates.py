"""The words and the tokens of prompts."""

from datetime import date

import pytest

from ragauge.errors import UserError
from ragauge.measure.inputs import template_of
from ragauge.methods.evidence.request import REQUESTS
from ragauge.methods.prompts import PromptStyle, build_prompt
from ragauge.methods.prompts.templates import (
    document_text,
    query_text,
    set_template_arguments,
    wrapper,
)
from ragauge.testing import write_checkpoint
from tiny_models import byte_tokenizer

INSTRUCTION = "Use the search results."
DOCUMENTS = [("Tea", "Tea is a drink."), ("Äpfel", "An apple\u2028is red.")]


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def built(tokenizer, template="chat", **changes):
    question = changes.pop("question", "what is tea")
    documents = changes.pop("documents", DOCUMENTS)
    gold = {key: changes.pop(key) for key in ("gold", "gold_sources") if key in changes}
    style = PromptStyle(**{"instruction": INSTRUCTION, "template": template, **changes})
    return build_prompt(question, documents, style, tokenizer, **gold)


def test_templates_are_the_papers_and_those_that_models_were_trained_on(tokenizer):
    assert wrapper("chat", tokenizer) == ("<s>[user]", "[/][assistant]")
    assert wrapper("alpaca") == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request."
        "\n\n### Instruction:\n",
        "\n\n### Response:\n",
    )
    assert wrapper("vicuna") == (
        "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions. USER: ",
        " ASSISTANT:",
    )
    assert wrapper("llama2") == ("[INST] ", " [/INST]")
    assert wrapper("plain") == ("", "\nAnswer:")


def test_a_prompt_that_asks_for_an_answer_itself_asks_once(tokenizer):
    """LongBench's prompts end so; the words are those of the prompt, only the segments part
    elsewhere.
    """
    official = "Read.\n\n{context}\n\nQuestion: {input}\n\nAnswer:"
    prompt = built(tokenizer, "plain", instruction=official, question="What?")
    text = tokenizer.decode(prompt.plain(prompt.documents), skip_special_tokens=True)
    assert text.endswith("Question: What?\n\nAnswer:")
    assert tokenizer.decode(prompt.task) == "\n\nAnswer:"
    assert text.count("Answer:") == 1


def test_an_unknown_template_lists_the_choices():
    with pytest.raises(
        UserError,
        match=r"unknown template 'alpca'; did you mean 'alpaca'\? known: alpaca, chat, llama2, plain, vicuna",
    ):
        wrapper("alpca")


def test_chat_needs_a_chat_template():
    with pytest.raises(UserError, match=r"no chat template; use 'alpaca' or 'plain'"):
        wrapper("chat", byte_tokenizer(chat=False))


USER = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}"
PARTS = "{% for m in messages %}{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}"
RENDERED = {
    "arguments": (
        USER + "{% if not enable_thinking %}<think></think>{% endif %}[assistant]",
        {"enable_thinking": False},
    ),
    "an argument left out": (
        USER + "{% if enable_thinking is defined %}<think>{% endif %}[assistant]",
        {},
    ),
    "the date": ("{{ strftime_now('%A %d %B %Y, %-d.%-m.%y') }}\n" + USER + "[assistant]", {}),
    "a date in a macro": (
        "\n  {% macro day(f) %}{{ strftime_now(f) }}{% endmacro %}\n{{ day('%Y') }}\n"
        + USER
        + "[assistant]",
        {},
    ),
    "parts": (PARTS + "{% endfor %}{% endfor %}[assistant]", {}),
    "text or parts": (
        "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}?{% endif %}{% endfor %}|",
        {},
    ),
    "twice": (
        "{% set q = messages[0]['content'] %}{{ bos_token }}{{ q }}[/]Again: {{ q }}[/][assistant]",
        {},
    ),
    "named": ({"rag": "?", "default": USER + "[assistant]"}, {}),
}


@pytest.mark.parametrize("case", RENDERED)
def test_a_chat_template_is_rendered_as_transformers_render_it(case):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template, arguments = RENDERED[case]
    set_template_arguments(tokenizer, arguments, date.today().isoformat())
    documents = "".join(f"[Document](Title: {title}) {text}\n" for title, text in DOCUMENTS)
    words = f"{INSTRUCTION}\n\n{documents}Question: what is tea?"
    words = [{"type": "text", "text": words}] if case == "parts" else words
    options = {"add_generation_prompt": True, "return_dict": False, **arguments}
    ids = tokenizer.apply_chat_template([{"role": "user", "content": words}], **options)
    for tokenization in ("segments", "whole"):
        prompt = built(tokenizer, tokenization=tokenization)
        assert prompt.as_one(tokenizer, prompt.documents) == prompt.plain(prompt.documents) == ids
    one = prompt.as_one(tokenizer, prompt.documents[:1])
    assert tokenizer.decode(one).count("[Document]") == (2 if case == "twice" else 1)


def test_the_date_of_a_template_is_the_same_in_every_run(tokenizer):
    dated = byte_tokenizer()
    dated.chat_template = USER + "{{ strftime_now('%d %b %Y %H:%M') }}"
    assert wrapper("chat", dated)[1] == "[/]26 Jul 2024 00:00"
    set_template_arguments(dated, {}, "2025-01-03")
    assert wrapper("chat", dated)[1] == "[/]03 Jan 2025 00:00"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            USER.replace("m['content']", "m['content'] | upper") + "|",
            "does not show the user's words as they are",
        ),
        ("{{ messages[0]['role'] }}|", "does not show the user's words as they are"),
        ("{{ messages[0]['content'] }}", "writes nothing after the user's words"),
        ("{{ raise_exception('no user') }}", "cannot be rendered: no user"),
        (
            "{{ messages[0]['content'] }} {{ messages[0]['content'][:2] }}|{{ messages[1]['x'] }}",
            "cannot be rendered: ",
        ),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_one_line(template, reason):
    refused = byte_tokenizer()
    refused.chat_template = template
    message = rf"^template 'chat': the model's chat template {reason}.*; use 'alpaca' or 'plain'$"
    with pytest.raises(UserError, match=message):
        wrapper("chat", refused)


def test_a_request_for_evidence_needs_a_template_that_shows_the_article_once():
    repeating = byte_tokenizer()
    repeating.chat_template = RENDERED["twice"][0]
    with pytest.raises(
        UserError, match=r"repeats the user's words, which this method cannot; use 'alpaca'"
    ):
        REQUESTS["paper"].after_document(repeating, "Who?", "chat")


def test_a_document_and_a_question_as_the_paper_writes_them():
    assert document_text("Tea", "Tea is a drink.") == "[Document](Title: Tea) Tea is a drink."
    assert query_text(" what is tea ") == "Question: what is tea?"
    assert query_text("what is tea?") == "Question: what is tea?"


@pytest.mark.parametrize("unheard", [INSTRUCTION, "apple", "Question", "Answer"])
def test_a_segment_without_tokens_is_refused(unheard):
    with pytest.raises(
        UserError, match="question 'what is tea': a segment of its prompt has no tokens"
    ):
        built(
            lambda text, add_special_tokens: {"input_ids": [] if unheard in text else [5]}, "plain"
        )


def test_a_trained_model_is_asked_in_the_template_that_it_was_trained_in(tmp_path, caplog):
    folder = write_checkpoint(tmp_path / "model")
    with caplog.at_level("INFO", logger="ragauge"):
        assert template_of(f"path:{folder}") == "chat"
    expected = (
        "prompts in the template 'chat', as its tokenizer has one; `template` chooses another"
    )
    assert caplog.messages == [f"path:{folder}: {expected}"]
    caplog.clear()
    (tmp_path / "model.json").write_text('{"template": "llama2", "settings": {}}')
    assert template_of(f"path:{folder}") == "llama2"
    assert not caplog.messages
