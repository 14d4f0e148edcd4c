"""Write what the steps of gpu_kit.py read: a configuration, lengths, an encoder, RETRO with a
database, articles, and with --checkpoint random weights at a model's shape.

    python benchmarks/_gpu_kit_material.py FOLDER [--rehearse] [--checkpoint llama-2-7b]

CFIC searches among sentences, so it needs text and a tokenizer (here of bytes), which random tokens
do not have. With --rehearse all sizes are tiny.
"""

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from gpu_kit import read_kit
from ragauge.cost import shapes
from ragauge.cost.shape import Shape
from ragauge.measure.timing import shape_of
from ragauge.pipelines.database import chunking
from ragauge.pipelines.modes._retro import random_network
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.pipelines.sizes import Sizes
from ragauge.testing import byte_tokenizer

QUESTIONS = 8  # as many as are searched side by side
ROOM = 32768  # positions at least, so that one checkpoint serves all articles


def write(folder: Path, device: str, rehearse: bool) -> None:
    """Write everything but a checkpoint."""
    kit = read_kit()
    sizes = kit["sizes"]["rehearsed" if rehearse else "full"]
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, counts in kit["lengths"].items():
        _write_json(folder / f"{name}.json", sizes.get("lengths", counts))
    for name, shape in kit["models"].items() if rehearse else ():
        (folder / name).mkdir(exist_ok=True)
        _write_json(folder / name / "config.json", shape)
    for name, size in sizes["articles"].items():
        questions = [_question(draw, name, number, size) for number in range(QUESTIONS)]
        _write_lines(folder / f"{name}.jsonl", questions)
    torch.manual_seed(0)  # an index fits the vectors of a later start, too
    BertModel(BertConfig(**sizes["encoder"])).save_pretrained(folder / "encoder")
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder / "retro")
    special = (tokenizer.eos_token, tokenizer.eos_token_id)  # opens a text, which may be empty
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{special[0]} $A", special_tokens=[special]
    )
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder / "encoder")
    _config(shape_of("llama-2-7b")).save_pretrained(folder / "vllm")
    _write_retro(folder / "retro", Sizes(**sizes["retro"]))
    articles = [
        _article(draw, sizes["documents"]["size"]) for _ in range(sizes["documents"]["count"])
    ]
    _write_lines(folder / "corpus.jsonl", [{"title": "", "text": text} for text in articles])
    configuration = _configuration(kit, sizes, folder, device, rehearse)
    _write_json(folder / "kit.json", configuration)
    settings = DatabaseSettings.model_validate(configuration["databases"]["retro"])
    chunking.build_shard(folder / "database", settings, 0)
    chunking.mark(folder / "database", 1, 0)
    chunking.gather(folder / "database", 1)


def _configuration(
    kit: dict[str, Any], sizes: dict[str, Any], folder: Path, device: str, rehearse: bool
) -> dict[str, Any]:
    """The experiment whose labels the steps use."""
    models = {name: {"source": str(folder / name) if rehearse else name} for name in kit["models"]}
    models["cfic"] = {"source": f"path:{folder / 'cfic'}"}
    retro = f"path:{folder / 'retro'}"
    models["retro"] = {"source": retro, "device": device, "dtype": "float32"}
    articles = {
        name: {"dataset": f"longbench_{name}", "data": str(folder / f"{name}.jsonl")}
        for name in sizes["articles"]
    }
    encoder = f"path:{folder / 'encoder'}"
    methods = {
        name: options | ({"encoder": encoder} if options.get("method") == "dense" else {})
        for name, options in kit["methods"].items()
    }
    database = {
        "corpus": str(folder / "corpus.jsonl"),
        "tokenizer": retro,
        "encoder": encoder,
        "engine": "torch",
        "shards": 1,
        "indexes": {"ivf": sizes["index"]},
    }
    return {
        "run": "gpu-kit",
        "models": models,
        "datasets": {"nq_open": {}, **articles},
        "methods": methods,
        "databases": {"retro": database},
        "pipelines": kit["pipelines"],
    }


def write_checkpoint(model: str, folder: Path) -> None:
    """As the hub has Llama's, in bfloat16; weights are drawn on the GPU where there is one."""
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.set_default_dtype(torch.bfloat16)
        made = LlamaForCausalLM(_config(shapes.with_context(shape_of(model), ROOM)))
    made.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def _config(shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        intermediate_size=_each(shape.ffn),
        num_hidden_layers=shape.layers,
        num_attention_heads=_each(shape.heads),
        num_key_value_heads=_each(shape.kv_heads),
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=False,
    )


def _each(sizes: tuple[int, ...] | int) -> int:
    return sizes[0] if isinstance(sizes, tuple) else sizes


def _write_retro(folder: Path, sizes: Sizes) -> None:
    """RETRO of random weights, as `ragauge fetch` converts its checkpoint."""
    folder.mkdir(exist_ok=True)
    save_file(random_network(sizes).state_dict(), folder / "model.safetensors")
    _write_json(folder / "config.json", {"model_type": "retro", **asdict(sizes)})


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _question(draw: random.Random, dataset: str, number: int, size: int) -> dict[str, Any]:
    """A question in LongBench's format on an article of so many bytes."""
    return {
        "input": _words(draw, 4) + "?",
        "context": _article(draw, size),
        "answers": [_words(draw, 2)],
        "_id": str(number),
        "length": size,
        "dataset": dataset,
        "language": "en",
        "all_classes": None,
    }


def _article(draw: random.Random, characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += _words(draw, draw.randint(6, 16)).capitalize() + ". "
    return text[: characters - 1] + "."


def _words(draw: random.Random, count: int) -> str:
    return " ".join(
        "".join(draw.choices(ascii_lowercase, k=draw.randint(2, 9))) for _ in range(count)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu", help="that RETRO runs on")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--checkpoint", metavar="MODEL", help="write its random weights alone")
    args = parser.parse_args()
    if args.checkpoint:
        model = str(args.folder / args.checkpoint) if args.rehearse else args.checkpoint
        write_checkpoint(model, args.folder / "cfic")
    else:
        write(args.folder, args.device, args.rehearse)


if __name__ == "__main__":
    main()
