"""Prompts under tokenizers of the kinds that the papers' models have: their tokens are those of the whole text."""

from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ragauge.engines.protocol import Limits, Response
from ragauge.evidence.request import REQUESTS
from ragauge.evidence.sentences import tokenize
from ragauge.methods import make
from ragauge.prompts import Prompt, Source, build_prompt
from ragauge.prompts.templates import token_ids, wrapper
from tiny_models import LLAMA, tiny_lm

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
SPLITS = {"llama_3": LLAMA_3, "qwen": LLAMA_3.replace("{1,3}", ""), "bloom": BLOOM, "gpt_neox": None}
KINDS = ("llama_2", *SPLITS)
MERGES = [("\u010a", "\u010a"), ("\u0120", "\u010a"), ("?", "\u010a"), (".", "\u010a\u010a"), ("?", "\u010a\u010a")]
DOCUMENTS = [("Lighthouse", "It was lit in 1874 by Greta Holm. "), ("B\u00e4ckerei", "Rye bread?"), ("", " (old)")]


def tokenizer_of(kind: str) -> Any:
    """A tokenizer of a kind, its vocabulary bytes or letters and what runs of line ends merge to."""
    begin, special = kind in ("llama_2", "llama_3"), ["<unk>", "<s>", "</s>"]
    if kind == "llama_2":
        merges = [("\u2581", "\u2581"), ("\u2581", "["), ("\u2581", "W")]
        letters = [*(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]
    else:
        merges, letters = MERGES, sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: place for place, piece in enumerate([*special, *letters, *map("".join, merges)])}
    inner = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=kind == "llama_2", fuse_unk=True))
    if kind == "llama_2":
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        cut = [pre_tokenizers.Split(Regex(SPLITS[kind]), "isolated")] if SPLITS[kind] else []
        bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cut)
        inner.pre_tokenizer = pre_tokenizers.Sequence([*cut, bytewise])
        inner.decoder = decoders.ByteLevel()
    if begin:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
    return made


def built(tokenizer: Any, template: str, tokenization: Any = "whole", **others: Any) -> Prompt:
    others = {"instruction": "Answer the question.", "template": template, "tokenizer": tokenizer} | others
    return build_prompt("Who lit it", DOCUMENTS, tokenization=tokenization, **others)


def text_of(template: str, tokenizer: Any, documents: Any = DOCUMENTS) -> str:
    """The words of the prompt, by hand."""
    opening, task = wrapper(template, tokenizer)
    shown = "".join(f"[Document](Title: {title}) {text}\n" for title, text in documents)
    return f"{opening}Answer the question.\n\n{shown}Question: Who lit it?{task}"


@pytest.mark.parametrize("template", ["chat", "alpaca", "llama2", "plain", "vicuna"])
@pytest.mark.parametrize("kind", KINDS)
def test_segments_joined_are_the_tokens_of_the_whole_prompt(kind: str, template: str) -> None:
    tokenizer = tokenizer_of(kind)
    prompt = built(tokenizer, template)
    special = {"add_special_tokens": template != "chat"}
    assert prompt.plain(prompt.documents) == tokenizer(text_of(template, tokenizer), **special)["input_ids"]
    assert prompt.exact_tokens
    text = text_of(template, tokenizer, [DOCUMENTS[2], DOCUMENTS[0]])  # documents are the same in any order
    chosen = [prompt.documents[i] for i in (2, 0)]
    assert prompt.plain(chosen) == prompt.as_one(tokenizer, chosen) == tokenizer(text, **special)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_reads_a_prompt_as_one_sends_the_tokens_of_one_text(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    prompt = built(tokenizer, "plain", instruction="Read: {context}\n\nQuestion: {input}")
    text = "Read: " + "".join(f"{title}\n{words}" if title else words for title, words in DOCUMENTS)
    text += "\n\nQuestion: Who lit it\nAnswer:"
    assert prompt.as_one(tokenizer, prompt.documents) == tokenizer(text)["input_ids"]
    assert prompt.exact_tokens == (prompt.plain(prompt.documents) == tokenizer(text)["input_ids"])
    assert prompt.as_one(tokenizer) == tokenizer("\n\nQuestion: Who lit it\nAnswer:")["input_ids"]


def test_segments_by_themselves_get_no_blank_of_their_own_and_say_that_they_are_not_exact() -> None:
    sentencepiece, bytewise = tokenizer_of("llama_2"), tokenizer_of("gpt_neox")
    prompt = built(sentencepiece, "llama2", "segments")
    assert prompt.plain(prompt.documents) == sentencepiece(text_of("llama2", sentencepiece))["input_ids"]
    prompt = built(bytewise, "plain", "segments")
    assert bytewise.convert_ids_to_tokens(prompt.preamble)[-1] == "\u010a\u010a"  # two line ends before a document
    assert prompt.exact_tokens is False
    assert prompt.as_one(bytewise, prompt.documents) == prompt.plain(prompt.documents)


@pytest.mark.parametrize("template", ["llama2", "vicuna"])
def test_cfic_reads_an_article_as_part_of_one_text(template: str) -> None:
    tokenizer, request = tokenizer_of("llama_2"), REQUESTS["paper"]
    opening, task = wrapper(template)
    ids, sentences = tokenize([Source(0, "", "Who lit it? Greta.")], tokenizer)
    read = [*request.before_document(tokenizer, template), *ids, *request.after_document(tokenizer, "Who?", template)]
    text = f"{opening}{request.before}Who lit it? Greta.{request.after.format(question='Who?')}{task}"
    assert read == tokenizer(text)["input_ids"]
    assert [tokenizer.decode(ids[s.first : s.end]).strip() for s in sentences] == ["Who lit it?", "Greta."]
    assert token_ids(tokenizer, "Who") == tokenizer("\nWho")["input_ids"][3:]  # begin, blank and line end


@pytest.mark.parametrize("name", ["naive", "bm25", "full_article", "oracle"])
def test_plain_methods_read_the_whole_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, read = tiny_lm(LLAMA), list[Any]()
    lm.tokenizer = tokenizer_of("gpt_neox")
    monkeypatch.setattr(lm, "respond", lambda ids, limits: read.append(ids) or Response([1]))
    prompt = built(lm.tokenizer, "plain", gold=(1,))
    method = make(name, **({"path_caching": False} if name == "bm25" else {}))
    answer = method.answer(lm, method.prepare(lm, prompt), prompt, Limits(1))
    text = text_of("plain", lm.tokenizer, [DOCUMENTS[i] for i in answer.kept])
    assert read == [lm.tokenizer(text)["input_ids"]]
