"""Tokenizers of the classes that the papers' checkpoints ship, whose vocabularies know the words of
`texts`.
"""

import json

from miniature.texts import WORDS

LLAMA_ROWS = 32_000
SPACE = "\u2581"
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
BYTE = 6  # the types of a SentencePiece
LLAMA_SPECIAL = ("<unk>", "<s>", "</s>")
LLAMA_CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }} {{ eos_token }}{% endif %}{% endfor %}"
)


def _prefixes(mark):
    """Every prefix of every word after a space, so that pairwise merges reach the word."""
    yield from dict.fromkeys(
        mark + form[:stop]
        for word in WORDS
        for form in (word, word.capitalize())
        for stop in range(1, len(form) + 1)
    )


def llama_pieces():
    """Llama's 32,000 pieces: three special ones, bytes, words by their prefixes, letters, and rare
    signs to the end.
    """
    letters = dict.fromkeys(SPACE + "".join(map(chr, range(33, 127))))
    pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    known = [*(p for p in _prefixes(SPACE)), *letters]
    rare = [chr(code) for code in range(0x4E00, 0x4E00 + LLAMA_ROWS - len(pieces) - len(known))]
    return pieces + [(piece, -float(rank), NORMAL) for rank, piece in enumerate([*known, *rare])]


def write_sentencepiece(path):
    """A `tokenizer.model` as SentencePiece writes it: a protobuf of pieces and of how the model was
    trained.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

    pieces = [
        ModelProto.SentencePiece(piece=text, score=score, type=kind)
        for text, score, kind in llama_pieces()
    ]
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
    trainer = TrainerSpec(
        model_type=TrainerSpec.BPE, vocab_size=LLAMA_ROWS, byte_fallback=True, **ids
    )
    spaces = {
        "add_dummy_prefix": True,
        "remove_extra_whitespaces": False,
        "escape_whitespaces": True,
    }
    normalizer = NormalizerSpec(name="identity", **spaces)
    made = ModelProto(pieces=pieces, trainer_spec=trainer, normalizer_spec=normalizer)
    path.write_bytes(made.SerializeToString())


def write_llama(folder, *, fast=False, pad=False, template=False):
    """Llama's tokenizer: `tokenizer.model`; `fast` adds tokenizer.json, `pad` LongLoRA's [PAD],
    `template` a chat.
    """
    write_sentencepiece(folder / "tokenizer.model")
    if fast:
        _llama_fast().save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
    }
    settings |= {"legacy": False, "clean_up_tokenization_spaces": False, "model_max_length": 10**30}
    if pad:
        _json(folder / "added_tokens.json", {"[PAD]": LLAMA_ROWS})
        special["pad_token"] = "[PAD]"
    if template:
        settings["chat_template"] = LLAMA_CHAT
    _write_settings(folder, special, **settings)


def _llama_fast():
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    pieces = [text for text, _, _ in llama_pieces()]
    ids = {text: i for i, text in enumerate(pieces)}
    made = Tokenizer(
        models.BPE(
            vocab=ids, merges=_merges(pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    _add_special(made, LLAMA_SPECIAL)
    return made


def _add_special(tokenizer, names):
    from tokenizers import AddedToken

    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )


def _merges(pieces):
    """Each longer piece from its prefix and its last letter, the pieces in their order."""
    known = set(pieces)
    longer = [p for p in pieces if len(p) > 1 and not p.startswith("<")]
    return [(p[:-1], p[-1]) for p in longer if p[:-1] in known and p[-1] in known]


def write_unigram(folder):
    """T5's `tokenizer.json`: pad, end and unknown first, then words and letters. Returns its
    length.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<pad>", "</s>", "<unk>"]
    words = [SPACE + form for word in WORDS for form in (word, word.capitalize())]
    letters = dict.fromkeys([SPACE, *map(chr, range(33, 127))])
    scores = [(piece, -float(rank)) for rank, piece in enumerate(dict.fromkeys([*words, *letters]))]
    made = Tokenizer(
        models.Unigram([*((name, 0.0) for name in special), *scores], unk_id=2, byte_fallback=False)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    _add_special(made, special)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return int(made.get_vocab_size())


def write_bytewise(folder, special, tokenizer_class, **settings):
    """A byte-level BPE as BLOOM, GPT-NeoX and SmolLM2 have it; `special` stands first. Returns its
    length.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    first = list(dict.fromkeys(special.values()))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [piece for piece in _prefixes("\u0120") if len(piece) > 1]
    pieces = [*first, *letters, *words]
    made = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=_merges(pieces))
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    _add_special(made, first)
    made.save(str(folder / "tokenizer.json"))
    _write_settings(folder, special, tokenizer_class=tokenizer_class, **settings)
    return len(pieces)


def write_wordpiece(folder):
    """BERT's uncased word pieces: `vocab.txt` and tokenizer.json. Returns their number."""
    from tokenizers import BertWordPieceTokenizer

    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    pieces = list(dict.fromkeys([*pieces, *WORDS]))
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True).save(
        str(folder / "tokenizer.json")
    )
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    _write_settings(folder, special, **settings)
    return len(pieces)


def _write_settings(folder, special, **settings):
    """What transformers keeps beside a tokenizer."""
    _json(folder / "tokenizer_config.json", settings | special)
    _json(folder / "special_tokens_map.json", special)


def _json(path, content):
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
