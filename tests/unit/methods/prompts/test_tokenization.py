"""Prompts under tokenizers of the kinds that the papers' models have: their tokens are those of the
whole text.
"""

import pytest

from ragauge.engines.protocol import Limits, Response
from ragauge.methods.base.making import make
from ragauge.methods.evidence.request import REQUESTS
from ragauge.methods.evidence.sentences import tokenize
from ragauge.methods.prompts import PromptStyle, Source, build_prompt
from ragauge.methods.prompts.templates import token_ids, wrapper
from tiny_models import LLAMA, tiny_lm
from tokenizer_kinds import KINDS, tokenizer_of

DOCUMENTS = [
    ("Lighthouse", "It was lit in 1874 by Greta Holm. "),
    ("B\u00e4ckerei", "Rye bread?"),
    ("", " (old)"),
]


def built(tokenizer, template, tokenization="whole", **others):
    gold = {"gold": others.pop("gold", ())}
    others = {"instruction": "Answer the question.", **others}
    style = PromptStyle(template=template, tokenization=tokenization, **others)
    return build_prompt("Who lit it", DOCUMENTS, style, tokenizer, **gold)


def text_of(template, tokenizer, documents=DOCUMENTS):
    """The words of the prompt, by hand."""
    opening, task = wrapper(template, tokenizer)
    heads = [f"(Title: {title})" if title else "" for title, _ in documents]
    shown = "".join(
        f"[Document]{head} {text}\n" for head, (_, text) in zip(heads, documents, strict=True)
    )
    return f"{opening}Answer the question.\n\n{shown}Question: Who lit it?{task}"


@pytest.mark.parametrize("template", ["chat", "alpaca", "llama2", "plain", "vicuna"])
@pytest.mark.parametrize("kind", KINDS)
def test_segments_joined_are_the_tokens_of_the_whole_prompt(kind, template):
    tokenizer = tokenizer_of(kind)
    prompt = built(tokenizer, template)
    special = {"add_special_tokens": template != "chat"}
    assert (
        prompt.plain(prompt.documents)
        == tokenizer(text_of(template, tokenizer), **special)["input_ids"]
    )
    assert prompt.exact_tokens
    assert prompt.opening == prompt.preamble[: len(prompt.opening)]
    # whose texts begin with a token
    assert bool(prompt.opening) == (template != "plain" or "llama" in kind)
    # documents are the same in any order
    text = text_of(template, tokenizer, [DOCUMENTS[2], DOCUMENTS[0]])
    chosen = [prompt.documents[i] for i in (2, 0)]
    assert (
        prompt.plain(chosen)
        == prompt.as_one(tokenizer, chosen)
        == tokenizer(text, **special)["input_ids"]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_reads_a_prompt_as_one_sends_the_tokens_of_one_text(kind):
    tokenizer = tokenizer_of(kind)
    prompt = built(tokenizer, "plain", instruction="Read: {context}\n\nQuestion: {input}")
    text = "Read: " + "".join(f"{title}\n{words}" if title else words for title, words in DOCUMENTS)
    text += "\n\nQuestion: Who lit it\nAnswer:"
    assert prompt.as_one(tokenizer, prompt.documents) == tokenizer(text)["input_ids"]
    assert prompt.exact_tokens == (prompt.plain(prompt.documents) == tokenizer(text)["input_ids"])
    assert prompt.as_one(tokenizer) == tokenizer("\n\nQuestion: Who lit it\nAnswer:")["input_ids"]


@pytest.mark.parametrize("tokenization", ["whole", "segments"])
def test_no_prompt_ends_where_a_tokenizer_would_end_a_text(tokenization):
    """Tokenizers that were saved after a training often add the end of a text."""
    plain = tokenizer_of("llama_2")
    ending = tokenizer_of("llama_2")
    ending.add_bos_token = ending.add_eos_token = True
    assert ending("a")["input_ids"] == [*plain("a")["input_ids"], ending.eos_token_id]
    for template in ("chat", "plain"):
        expected, prompt = (
            built(tokenizer, template, tokenization) for tokenizer in (plain, ending)
        )
        assert (prompt.opening, prompt.preamble, prompt.task) == (
            expected.opening,
            expected.preamble,
            expected.task,
        )
        assert prompt.as_one(ending, prompt.documents) == expected.as_one(plain, expected.documents)


def test_segments_by_themselves_get_no_blank_of_their_own_and_say_that_they_are_not_exact():
    sentencepiece = tokenizer_of("llama_2")
    bytewise = tokenizer_of("gpt_neox")
    prompt = built(sentencepiece, "llama2", "segments")
    assert (
        prompt.plain(prompt.documents)
        == sentencepiece(text_of("llama2", sentencepiece))["input_ids"]
    )
    prompt = built(bytewise, "plain", "segments")
    # two line ends before a document
    assert bytewise.convert_ids_to_tokens(prompt.preamble)[-1] == "\u010a\u010a"
    assert prompt.exact_tokens is False
    assert prompt.as_one(bytewise, prompt.documents) == prompt.plain(prompt.documents)


@pytest.mark.parametrize("template", ["llama2", "vicuna"])
def test_cfic_reads_an_article_as_part_of_one_text(template):
    tokenizer = tokenizer_of("llama_2")
    request = REQUESTS["paper"]
    opening, task = wrapper(template)
    ids, sentences = tokenize([Source(0, "", "Who lit it? Greta.")], tokenizer)
    read = [
        *request.before_document(tokenizer, template),
        *ids,
        *request.after_document(tokenizer, "Who?", template),
    ]
    text = (
        f"{opening}{request.before}Who lit it? Greta.{request.after.format(question='Who?')}{task}"
    )
    assert read == tokenizer(text)["input_ids"]
    assert [tokenizer.decode(ids[s.first : s.end]).strip() for s in sentences] == [
        "Who lit it?",
        "Greta.",
    ]
    # begin, blank and line end
    assert token_ids(tokenizer, "Who") == tokenizer("\nWho")["input_ids"][3:]


@pytest.mark.parametrize("name", ["naive", "bm25", "full_article", "oracle"])
def test_plain_methods_read_the_whole_text(name, monkeypatch):
    lm = tiny_lm(LLAMA)
    read = []
    lm.tokenizer = tokenizer_of("gpt_neox")
    monkeypatch.setattr(lm, "respond", lambda ids, limits: read.append(ids) or Response([1]))
    prompt = built(lm.tokenizer, "plain", gold=(1,))
    method = make(name, **({"path_caching": False} if name == "bm25" else {}))
    answer = method.answer(lm, method.prepare(lm, prompt), prompt, Limits(1))
    text = text_of("plain", lm.tokenizer, [DOCUMENTS[i] for i in answer.kept])
    assert read == [lm.tokenizer(text)["input_ids"]]
