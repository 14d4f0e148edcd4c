"""Write what the steps of gpu_kit.py read: a configuration, lengths, an encoder, RETRO with a
database, articles, and with --checkpoint random weights
at the shape of Llama 2 7B.

    python benchmarks/_gpu_kit_material.py FOLDER [--rehearse] [--checkpoint]

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
        _write(folder / f"{name}.json", sizes.get("lengths", counts))
    for name, shape in kit["models"].items():  # tiny
        (folder / name).mkdir(exist_ok=True)
        _write(folder / name / "config.json", shape)
    for name, size in sizes["articles"].items():
        questions = (_question(draw, name, number, size) for number in range(QUESTIONS))
        _write(folder / f"{name}.jsonl", *questions)
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
    llama = folder / "llama-2-7b" if rehearse else "llama-2-7b"
    _config(shape_of(str(llama))).save_pretrained(folder / "vllm")
    _write_retro(folder / "retro", Sizes(**sizes["retro"]))
    articles = [
        _article(draw, sizes["documents"]["size"]) for _ in range(sizes["documents"]["count"])
    ]
    _write(folder / "corpus.jsonl", *({"title": "", "text": text} for text in articles))
    experiment = configuration(kit, sizes, folder, device, rehearse)
    _write(folder / "kit.json", experiment)
    settings = DatabaseSettings.model_validate(experiment["databases"]["retro"])
    chunking.build_shard(folder / "database", settings, 0)
    chunking.mark(folder / "database", 1, 0)
    chunking.gather(folder / "database", 1)


def configuration(
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


def write_checkpoint(folder: Path) -> None:
    """Llama as the hub has it, in bfloat16; weights are drawn on the GPU where there is one."""
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.set_default_dtype(torch.bfloat16)
        made = LlamaForCausalLM(_config(shapes.with_context(shape_of(str(folder / "vllm")), ROOM)))
    made.save_pretrained(folder / "cfic")
    byte_tokenizer().save_pretrained(folder / "cfic")


def _config(shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        intermediate_size=shape.ffn[0],
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads[0],
        num_key_value_heads=shape.kv_heads[0],
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=False,
    )


def _write_retro(folder: Path, sizes: Sizes) -> None:
    """RETRO of random weights, as `ragauge fetch` converts its checkpoint."""
    save_file(random_network(sizes).state_dict(), folder / "model.safetensors")
    _write(folder / "config.json", {"model_type": "retro", **asdict(sizes)})


def _write(path: Path, *lines: dict[str, Any]) -> None:
    """Write JSON, an object a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _question(draw: random.Random, dataset: str, number: int, size: int) -> dict[str, Any]:
    """A question in LongBench's format on an article of so many bytes."""
    return {
        "input": _words(draw, 4) + "?",
        "context": _article(draw, size),
        "answers": ["none"],
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
    parser.add_argument("--checkpoint", action="store_true", help="write Llama's weights alone")
    args = parser.parse_args()
    if args.checkpoint:
        write_checkpoint(args.folder)
    else:
        write(args.folder, args.device, args.rehearse)


if __name__ == "__main__":
    main()
