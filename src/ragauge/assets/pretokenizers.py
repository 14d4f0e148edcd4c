"""How byte-level tokenizers of GGUF files cut a text into words, by the value of
`tokenizer.ggml.pre`.

The expressions are those of llama.cpp (`src/llama-vocab.cpp`), which reads nothing else of a file:
applied one after the other, each to the pieces that the one before left. A value that is not listed
is refused, since another cut gives other tokens without a word.
"""

import json
from collections.abc import Sequence
from typing import Any

from ragauge.errors import unknown

_SHORT = r"'s|'t|'re|'ve|'m|'ll|'d"  # it's, they're
_ANY_CASE = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_BLANKS = r"\s+(?!\S)|\s+"
_GPT_2 = rf"{_SHORT}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_BLANKS}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LINES = rf"{_SIGNS}|\s*[\r\n]+|{_BLANKS}"
_LLAMA_3, _QWEN_2 = (
    rf"{_ANY_CASE}|{_WORD}|{digits}|{_LINES}" for digits in (r"\p{N}{1,3}", r"\p{N}")
)
# A word is capitals, then small letters; any letter but those of ASCII is both.
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_CAPITAL = r"[\p{L}&&[^a-z]]"
_SMALL = r"[\p{L}&&[^A-Z]]"
_CAPITALISED = (rf"{_HEAD}{_CAPITAL}*{_SMALL}+", rf"{_HEAD}{_CAPITAL}+{_SMALL}*")
_PATHS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{_BLANKS}"
_PUNCTUATION = r"\p{P}$+<=>^~|"
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_ASIAN = r"[\u0800-\u9fa5\uac00-\ud7ff&&[^\s]]+"  # llama.cpp has no blank in any class but \s
# Letters that have a case, without the alphabets that DeepSeek's first tokenizer leaves out.
_CASED = (
    r"[\p{Lu}\p{Ll}\p{Lt}&&[^\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8f\u2d00-\u2d2f\ua78f-\uab6f"
    r"\x{10500}-\x{10c7f}\x{10cf3}-\x{1189f}\x{118e0}-\x{1e8ff}\x{1e944}-\x{10ffff}]]"
)
_MARKS = r"[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]"
_DEEPSEEK_3 = (
    r"[!-/:-~&&[^A-Za-z]][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|\s*[\r\n]+|{_BLANKS}"
)

_SPLITS = {
    "gpt-2 phi-2 mpt olmo jais exaone4 trillion granite-docling": (_GPT_2,),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": (r"\p{N}", _GPT_2),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral dbrx smaug-bpe": (_LLAMA_3,),
    "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan": (_QWEN_2,),
    "tekken": (rf"{'|'.join(_CAPITALISED)}|\p{{N}}|{_PATHS}",),
    "gpt-4o llama4": (
        "|".join([*(f"{one}(?:{_ANY_CASE})?" for one in _CAPITALISED), r"\p{N}{1,3}", _PATHS]),
    ),
    "falcon": (rf"[{_PUNCTUATION}`]+", _GPT_2, "[0-9]{3}"),
    "default": (rf"[{_PUNCTUATION}]+", _GPT_2, r"\p{N}+", "[0-9]{3}"),
    "deepseek-llm": (r"[\r\n]", rf"\s?{_CASED}+", rf"\s?{_MARKS}+", r"\s+\z", _ASIAN, r"\p{N}+"),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}"),
    "deepseek-v3 hunyuan-dense": (
        r"\p{N}{1,3}",
        r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _DEEPSEEK_3,
    ),
    "bloom poro-chat gpt3-finnish": (_BLOOM,),
    "viking": (_BLOOM, r"\p{N}"),
}
SPLITS = {name: patterns for names, patterns in _SPLITS.items() for name in names.split()}
# Words of the vocabulary stay whole, although no merges may lead to them; and a text begins with a
# token of its own, unless the file says something else.
WITH_BOS = IGNORE_MERGES = (
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "tekken",
)


def set_splits(tokenizer: Any, name: str) -> None:
    """Give a byte-level tokenizer of the `tokenizers` library the cuts of this
    `tokenizer.ggml.pre`.

    Raises:
        UserError: a name whose cuts are not known here.
    """
    from tokenizers import Regex, pre_tokenizers

    if name not in SPLITS:
        raise unknown("tokenizer.ggml.pre", name, SPLITS)
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[name]]
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, bytewise])
    tokenizer.model.ignore_merges = name in IGNORE_MERGES


CONTROL = 3
USER_DEFINED = 4  # ggml's types of tokens that stand for themselves in a text


def set_tokens(tokenizer: Any, tokens: Sequence[tuple[str, int | None]], blank: bool) -> None:
    """Give a tokenizer that transformers made of a GGUF file the tokens that stand for themselves
    in llama.cpp.

    transformers leaves out those of a byte-level vocabulary that have letters beyond ASCII or
    blanks, or gives them numbers beyond the file's. SentencePiece puts its blank before every
    stretch of text, also after a control token.

    Args:
        tokens: with ggml's type of each.
        blank: whether a SentencePiece vocabulary puts a blank before a text.
    """
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    model = state["model"]
    added = {}
    for token in state["added_tokens"]:
        if (number := token["id"]) < len(tokens) and token["content"] == tokens[number][0]:
            added[number] = token
    names = {number: name for number, (name, _) in enumerate(tokens)}
    names |= {number: token for token, number in model["vocab"].items()}
    options = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, (name, kind) in enumerate(tokens):
        if kind in (CONTROL, USER_DEFINED):
            added[number] = {"id": number, "content": name, **options, "special": kind == CONTROL}
            names[number] = name
    state["added_tokens"] = [added[number] for number in sorted(added)]
    model["vocab"] = {name: number for number, name in names.items()}
    model["merges"] = [(a, b) for a, b in model["merges"] if {a, b, a + b} <= model["vocab"].keys()]
    if model["byte_fallback"]:
        before = [{"type": "Prepend", "prepend": "\u2581"}] * blank
        replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        state |= {
            "normalizer": {"type": "Sequence", "normalizers": [*before, replaced]},
            "pre_tokenizer": None,
        }
        decoders = state["decoder"]["decoders"]
        state["decoder"]["decoders"] = [one for one in decoders if blank or one["type"] != "Strip"]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.update_post_processor()
