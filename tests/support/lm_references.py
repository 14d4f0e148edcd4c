"""Tiny random checkpoints of every family that transformers has too, and how tests read them with
either library.
"""

import json

import torch
import transformers
from safetensors.torch import save_file

from ragauge.engines.checkpoint import read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.passes import Reading
from ragauge.engines.protocol import CallOptions
from ragauge.engines.spans import Row, Span

VOCAB = 97
CONTEXT = 2048
ROPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BLOOM = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "n_layer": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MPT = {
    "vocab_size": VOCAB,
    "d_model": 48,
    "n_layers": 2,
    "max_seq_len": CONTEXT,
    "eos_token_id": 2,
}

DIM = 8
HEADS = (4, 6)
KV_HEADS = (2, 3)
FFN = (32, 64)
OPENELM = {
    "model_type": "openelm",
    "vocab_size": VOCAB,
    "model_dim": 24,
    "head_dim": DIM,
    "num_transformer_layers": 2,
    "num_query_heads": list(HEADS),
    "num_kv_heads": list(KV_HEADS),
    "num_gqa_groups": 2,
    "ffn_multipliers": [1.4, 2.6],
    "ffn_dim_divisor": 16,
    "ffn_with_glu": True,
    "activation_fn_name": "swish",
    "normalize_qk_projections": True,
    "normalization_layer_name": "rms_norm",
    "rope_freq_constant": 10000,
    "max_context_length": 2048,
    "share_input_output_layers": True,
    "eos_token_id": 2,
}


def rope(kind, kv_heads, **changes):
    heads = {"num_attention_heads": 4, "num_key_value_heads": kv_heads}
    return lambda: getattr(transformers, f"{kind}Config")(**ROPE | heads | changes)


LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 500.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 500.0,
}
MILLION = {"rope_type": "default", "rope_theta": 1e6}
WINDOW = {"use_sliding_window": True}
LAYER_TYPES = ["sliding_attention", "full_attention"]
GEMMA = {
    "num_hidden_layers": 3, "sliding_window_pattern": 2, "sliding_window": 8, "head_dim": 16,
    "query_pre_attn_scalar": 24,
}  # fmt: skip
GEMMA_ROPE = {
    "full_attention": LINEAR,
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
ORIGINAL = {"original_max_position_embeddings": 512}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 2.5],
    "long_factor": [2.0, 5.0, 9.0],
}
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.5,
}
CONFIGS = {
    "llama": rope("Llama", 4),
    "llama_gqa_tied": rope("Llama", 2, tie_word_embeddings=True),
    "llama_biases": rope("Llama", 1, attention_bias=True, mlp_bias=True),
    "llama_linear": rope("Llama", 2, rope_parameters=LINEAR),
    "llama3": rope("Llama", 2, hidden_size=64, rope_parameters=LLAMA3),
    "mistral": rope("Mistral", 2, head_dim=16, sliding_window=None),
    "qwen2": rope("Qwen2", 2),
    "qwen2_tied": rope("Qwen2", 1, tie_word_embeddings=True, rope_parameters=MILLION),
    "mistral_window": rope("Mistral", 2, sliding_window=8),
    "qwen2_window": rope("Qwen2", 2, sliding_window=6, layer_types=LAYER_TYPES, **WINDOW),
    "qwen3_window": rope("Qwen3", 2, sliding_window=9, max_window_layers=1, head_dim=16, **WINDOW),
    "gemma3": rope("Gemma3Text", 2, **GEMMA),
    "gemma3_linear": rope(
        "Gemma3Text", 1, **GEMMA | {"final_logit_softcapping": 4.0, "rope_parameters": GEMMA_ROPE}
    ),
    "phi3": rope("Phi3", 4, pad_token_id=0),
    "phi3_window": rope("Phi3", 2, pad_token_id=0, sliding_window=11),
    "phi3_partial": rope(
        "Phi3", 2, pad_token_id=0, partial_rotary_factor=0.75, tie_word_embeddings=True
    ),
    "phi4_mini": rope(
        "Phi3", 2, pad_token_id=0, partial_rotary_factor=0.75, rope_parameters=LONGROPE, **ORIGINAL
    ),
    "smollm3": rope("SmolLM3", 2, pad_token_id=0, num_hidden_layers=3, no_rope_layer_interval=2),
    "smollm3_window": rope(
        "SmolLM3", 2, pad_token_id=0, no_rope_layers=[0, 1], sliding_window=7, **WINDOW
    ),
    "olmo2": rope("Olmo2", 4),
    "olmo2_gqa": rope("Olmo2", 2, tie_word_embeddings=True),
    "granite": rope("Granite", 2, **GRANITE),
    "granite_biases_tied": rope(
        "Granite", 4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, **GRANITE
    ),
    "qwen3": rope("Qwen3", 2, head_dim=16),
    "qwen3_tied_biases": rope(
        "Qwen3", 1, head_dim=8, attention_bias=True, tie_word_embeddings=True
    ),
    "bloom_4_heads": lambda: transformers.BloomConfig(**BLOOM, n_head=4),
    "bloom_6_heads": lambda: transformers.BloomConfig(**BLOOM, n_head=6),
    "mpt_4_heads": lambda: transformers.MptConfig(**MPT, n_heads=4),
    "mpt_6_heads": lambda: transformers.MptConfig(**MPT, n_heads=6),
    "mpt_clipped": lambda: transformers.MptConfig(**MPT, n_heads=4, attn_config={"clip_qkv": 0.5}),
}


def build(name, **changes):
    """A transformers model of the named configuration: random weights, norms and biases as well,
    fp32, eager.
    """
    config = CONFIGS[name]()
    for key, value in changes.items():
        setattr(config, key, value)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
            if parameter.ndim == 1:  # norms and biases
                parameter.add_(0.5)
    return model


def openelm_sizes(config, ffn):
    """The sizes of OpenELM's tensors by their names in its checkpoints, and those of its feed-forward
    layers.
    """
    width = config["model_dim"]
    dim = config["head_dim"]
    sizes = {
        "transformer.token_embeddings.weight": (config["vocab_size"], width),
        "transformer.norm.weight": (width,),
    }
    layers = zip(config["num_query_heads"], config["num_kv_heads"], ffn, strict=True)
    for i, (heads, kv_heads, inner) in enumerate(layers):
        layer = {
            "attn_norm": (width,),
            "ffn_norm": (width,),
            "attn.qkv_proj": ((heads + 2 * kv_heads) * dim, width),
            "attn.q_norm": (dim,),
            "attn.k_norm": (dim,),
            "attn.out_proj": (width, heads * dim),
            "ffn.proj_1": (2 * inner, width),
            "ffn.proj_2": (width, inner),
        }
        sizes |= {f"transformer.layers.{i}.{name}.weight": size for name, size in layer.items()}
    return sizes


def openelm_tensors():
    """Random tensors by the names of OpenELM's checkpoints."""
    generator = torch.Generator().manual_seed(0)
    sizes = openelm_sizes(OPENELM, FFN)
    return {name: torch.randn(size, generator=generator) * 0.4 for name, size in sizes.items()}


def write_openelm(folder, tensors):
    """OpenELM's checkpoint of these tensors, in a folder that exists."""
    (folder / "config.json").write_text(json.dumps(OPENELM))
    save_file(tensors, folder / "model.safetensors")
    return folder


def read(
    folder,
    dtype=torch.float32,
    tokenizer=None,
    max_context=None,
):
    """Our decoder of a checkpoint folder."""
    return LM(
        Decoder(read_shape(folder, max_context), read_weights(folder, dtype, torch.device("cpu"))),
        tokenizer,
    )


def edit(path, **changes):
    """Change keys of a JSON file; None takes one out."""
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def tokens(count, seed=0):
    """Random token ids, no special ones among them."""
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def row(ids, start=0.0, past=(), step=1.0):
    return Row(ids, [start + step * i for i in range(len(ids))], tuple(past))


@torch.no_grad()
def reference_logits(model, ids):
    """transformers' logits of a plain prompt: (token, vocab)."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


@torch.inference_mode()
def all_logits(lm, ids, positions=None, chunk=10**9):
    """Our logits of every token of a plain prompt that is read `chunk` tokens at a time: (token,
    vocab).
    """
    cache = lm.new_cache(len(ids))
    parts = []
    positions = positions or [float(i) for i in range(len(ids))]
    for start in range(0, len(ids), chunk):
        piece = Row(
            ids[start : start + chunk],
            positions[start : start + chunk],
            (Span(0, start),) if start else (),
        )
        parts.append(hidden(lm, cache, [piece]))
    return lm.decoder.logits(torch.cat(parts))


def hidden(lm, cache, rows):
    """Hidden states of all new tokens of one pass, packed: (token, d_model)."""
    piece = Reading(lm.decoder, cache, rows, CallOptions("read")).request(rows, range(len(rows)))
    return lm.decoder.weights.norm(lm.decoder.read(piece.x, [piece.part]))
