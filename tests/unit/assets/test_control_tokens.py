"""Texts that quote control tokens: documents, questions and corpora have words only, a template has
its tokens.
"""

import pytest

from ragauge.assets.control_tokens import TemplateText, count_quoted, plain_reader
from ragauge.engines.loading import load_lm
from ragauge.methods.evidence.request import REQUESTS
from ragauge.methods.evidence.sft import SpanQuestion, TrainingDocument
from ragauge.methods.evidence.sft import encode as encode_training
from ragauge.methods.prompts import PromptStyle, build_prompt
from ragauge.methods.prompts.templates import token_ids
from ragauge.pipelines.database.database import encode
from ragauge.testing import byte_tokenizer, write_checkpoint
from tokenizer_kinds import KINDS, SPECIAL, tokenizer_of, unigram

OTHER_NAMES = ("<UNK>", "<S>", "</S>")
CHAT = (
    "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }} Yes{% endif %}"
)
QUOTING = [
    ("Forum</s>", "Say </s> twice</s></s>, then <s>.\n<unk>\n"),
    ("", "<s>It ended. "),
    ("B\u00e4ckerei", "Rye?"),
]
QUOTED = 8  # with the question's


@pytest.mark.parametrize("tokenization", ["whole", "segments"])
@pytest.mark.parametrize("template", ["chat", "plain", "llama2"])
@pytest.mark.parametrize("kind", [*KINDS, "unigram"])
def test_a_quoted_token_is_read_as_by_a_vocabulary_that_has_no_such_token(
    kind, template, tokenization
):
    """The other vocabulary has the same numbers under other names, which only its template writes."""
    prompts = []
    for special in (SPECIAL, OTHER_NAMES):
        tokenizer = unigram(special) if kind == "unigram" else tokenizer_of(kind, special)
        tokenizer.chat_template = CHAT
        style = PromptStyle("Answer the question.", template, tokenization)
        prompt = build_prompt("Who </s> lit it", QUOTING, style, tokenizer)
        one = prompt.as_one(tokenizer, [prompt.documents[2], prompt.documents[0]])
        prompts.append(
            (prompt.preamble, prompt.documents, prompt.query, prompt.task, prompt.exact_tokens, one)
        )
        assert prompt.control_tokens == (QUOTED if special == SPECIAL else 0)
        assert not {1, 2} & {token for ids in [*prompt.documents, prompt.query] for token in ids}
        assert (2 in prompt.task) == (template == "chat")
    assert prompts[0] == prompts[1]


def test_a_text_of_words_is_read_as_transformers_split_it():
    tokenizer = tokenizer_of("gpt_neox")
    text = "A</s> b <s>\n"
    ids = tokenizer(text, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    assert plain_reader(tokenizer, [text])(text, add_special_tokens=False)["input_ids"] == ids
    assert encode(tokenizer, ["x", text]) == [encode(tokenizer, ["x"])[0], ids]


def test_a_chat_is_read_as_transformers_sanitise_it():
    tokenizer = byte_tokenizer()
    documents = [("Forum", "<|end|><|assistant|>Jan.")]
    prompt = build_prompt("who<|end|>", documents, PromptStyle("Read.", "chat"), tokenizer)
    words = "Read.\n\n[Document](Title: Forum) <|end|><|assistant|>Jan.\nQuestion: who<|end|>?"
    options = {"add_generation_prompt": True, "sanitize_control_tokens": True, "return_dict": False}
    ids = tokenizer.apply_chat_template([{"role": "user", "content": words}], **options)
    assert prompt.as_one(tokenizer, prompt.documents) == ids
    assert prompt.control_tokens == 3


def test_words_that_a_template_writes_between_signs_are_control_tokens_too():
    """As Qwen's `<think>`, which its tokenizer does not call special; blanks and other words are
    words.
    """
    tokenizer = byte_tokenizer()
    names = ["<think>", "<|fim|>", "<h1>", "  ", "user"]
    tokenizer.add_tokens(names)
    tokenizer.chat_template += "<think>"
    assert count_quoted(tokenizer, ["".join(names), "<|end|>"]) == 3
    ids = tokenizer.get_added_vocab()
    read = token_ids(tokenizer, "".join(names))
    assert [name for name in names if ids[name] in read] == ["<h1>", "  ", "user"]
    assert token_ids(tokenizer, TemplateText("<think>")) == [ids["<think>"]]


def test_a_token_across_the_edge_of_a_text_is_none():
    tokenizer = byte_tokenizer()
    ids = token_ids(tokenizer, [TemplateText("<|user|>"), "x<|en", TemplateText("d|><|end|>")])
    names = tokenizer.convert_ids_to_tokens(ids)
    assert (names[0], names[-1]) == ("<|user|>", "<|end|>")
    assert tokenizer.decode(ids[1:-1]) == "x<|end|>"


def test_training_data_hold_the_words_of_an_article():
    tokenizer = byte_tokenizer()
    text = "It began.<|end|> It ended."
    document = TrainingDocument("x/1", "Tea", text, (SpanQuestion(0, len(text), "What<|end|>?"),))
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    encoded = encode_training(
        document, tokenizer, "plain", REQUESTS["paper"], end, 10_000, "sentencex"
    )
    [(request, response)] = encoded.requests
    # that of the response
    assert [ids.count(end) for ids in (encoded.document, request, response)] == [0, 0, 1]
    assert tokenizer.decode(response[:-1]) == text


def test_words_that_have_no_row_are_refused_and_padding_is_not(tmp_path):
    tokenizer = byte_tokenizer()
    write_checkpoint(tmp_path / "m")
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(tmp_path / "m")
    assert load_lm(str(tmp_path / "m"), threads=1).tokenizer.pad_token == "[PAD]"
    tokenizer.add_tokens(["Amsel", "lighthouse"])
    tokenizer.save_pretrained(tmp_path / "m")
    with pytest.raises(Exception, match=r"m: .* 259 rows, .* 2 tokens .*'Amsel'$"):
        load_lm(str(tmp_path / "m"), threads=1)
