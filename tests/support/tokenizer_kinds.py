"""Tokenizers of the kinds that models have, with vocabularies of letters."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<unk>", "<s>", "</s>")
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
SPLITS = {
    "llama_3": LLAMA_3,
    "qwen": LLAMA_3.replace("{1,3}", ""),
    "bloom": BLOOM,
    "gpt_neox": None,
}
KINDS = ("llama_2", *SPLITS)
MERGES = [
    ("\u010a", "\u010a"),
    ("\u0120", "\u010a"),
    ("?", "\u010a"),
    (".", "\u010a\u010a"),
    ("?", "\u010a\u010a"),
]


def tokenizer_of(kind, special=SPECIAL):
    """A tokenizer of a kind, its vocabulary bytes or letters and what runs of line ends merge to."""
    begin = kind in ("llama_2", "llama_3")
    if kind == "llama_2":
        merges = [("\u2581", "\u2581"), ("\u2581", "["), ("\u2581", "W")]
        letters = [*(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]
    else:
        merges = MERGES
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: place for place, piece in enumerate([*special, *letters, *map("".join, merges)])}
    inner = Tokenizer(
        models.BPE(
            ids, merges, unk_token=special[0], byte_fallback=kind == "llama_2", fuse_unk=True
        )
    )
    if kind == "llama_2":
        inner.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        inner.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        cut = [pre_tokenizers.Split(Regex(SPLITS[kind]), "isolated")] if SPLITS[kind] else []
        bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cut)
        inner.pre_tokenizer = pre_tokenizers.Sequence([*cut, bytewise])
        inner.decoder = decoders.ByteLevel()
    if begin:
        processor = processors.TemplateProcessing(
            single=f"{special[1]} $A", special_tokens=[(special[1], 1)]
        )
        inner.post_processor = processor
    made = _named(inner, special)
    made.chat_template = (
        "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
    )
    return made


def unigram(special):
    """Letters, whose model finds control tokens in a text even where it is told to see none."""
    letters = [(letter, -5.0) for letter in ["\u2581", *map(chr, range(33, 127)), "\u00e4"]]
    inner = Tokenizer(models.Unigram([*((name, 0.0) for name in special), *letters], unk_id=0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    processor = processors.TemplateProcessing(
        single=f"{special[1]} $A", special_tokens=[(special[1], 1)]
    )
    inner.post_processor = processor
    return _named(inner, special)


def _named(inner, special):
    named = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=inner, **named)
