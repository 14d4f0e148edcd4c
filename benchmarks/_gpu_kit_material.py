"""Write a checkpoint of random weights at a model's shape, and questions on long articles.

    python benchmarks/_gpu_kit_material.py llama-2-7b longbench_qasper FOLDER

CFIC searches among sentences, so it needs text and a tokenizer (here of bytes), which random tokens
do not have. An
article has as many tokens, which here are bytes, as the named counts say.
"""

import json
import random
import sys
from pathlib import Path
from string import ascii_lowercase

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ragauge.cost import shapes, tokens
from ragauge.measure.timing import shape_of
from ragauge.testing import byte_tokenizer

QUESTIONS = 3
ROOM = 32768  # positions at least, so that one checkpoint serves all articles


def main(model: str, counts: str, folder: Path) -> None:
    lengths = tokens.load(counts)
    if not (folder / "model" / "config.json").exists():
        _write_checkpoint(model, folder / "model", max(ROOM, 2 * lengths.total))
    draw = random.Random(0)
    with (folder / "questions.jsonl").open("w", encoding="utf-8") as file:
        for number in range(QUESTIONS):
            article = _article(draw, sum(lengths.documents))
            question = {
                "input": _words(draw, 4) + "?",
                "context": article,
                "answers": [_words(draw, 2)],
                "_id": str(number),
            }
            rest = {
                "length": lengths.total,
                "dataset": "qasper",
                "language": "en",
                "all_classes": None,
            }
            file.write(json.dumps(question | rest) + "\n")


def _write_checkpoint(model: str, folder: Path, room: int) -> None:
    """As the hub has Llama's, in bfloat16; weights are drawn on the GPU where there is one."""
    shape = shapes.with_context(shape_of(model), room)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        intermediate_size=shape.ffn[0] if isinstance(shape.ffn, tuple) else shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads[0] if isinstance(shape.heads, tuple) else shape.heads,
        num_key_value_heads=shape.kv_heads[0]
        if isinstance(shape.kv_heads, tuple)
        else shape.kv_heads,
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.set_default_dtype(torch.bfloat16)
        made = LlamaForCausalLM(config)
    made.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def _article(draw: random.Random, characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += _words(draw, draw.randint(6, 16)).capitalize() + ". "
    return text[: characters - 1] + "."


def _words(draw: random.Random, count: int) -> str:
    return " ".join(
        "".join(draw.choices(ascii_lowercase, k=draw.randint(2, 9))) for _ in range(count)
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
