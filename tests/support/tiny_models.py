"""Tiny models built in code: decoders with random weights, a tokenizer, an encoder, and a dense
reference.
"""

import random
from dataclasses import replace

import torch
import torch.nn.functional as F

from prompt_graphs import mask
from ragauge.cost.shape import Shape
from ragauge.engines.batching import BatchScheduler
from ragauge.engines.loading import random_lm
from ragauge.methods.prompts import Prompt, Source

VOCAB = 260  # 256 bytes and four special tokens
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)

LLAMA = Shape(
    family="llama",
    vocab=VOCAB,
    d_model=32,
    heads=(4, 4),
    kv_heads=(2, 2),
    head_dim=8,
    ffn=(48, 48),
    gated=True,
    max_context=1024,
    position="rope",
)
ALIBI = replace(
    LLAMA,
    family="bloom",
    kv_heads=(4, 4),
    ffn=(64, 64),
    gated=False,
    position="alibi",
    norm="layer",
    activation="gelu_tanh",
    alibi_slopes=(0.25, 0.0625, 0.015625, 0.00390625),
    bias=True,
    norm_bias=True,
    embedding_norm=True,
)
SHAPES = {"llama": LLAMA, "alibi": ALIBI}
FAMILIES = {
    "llama": LLAMA,
    "bloom": ALIBI,
    "mpt": replace(
        ALIBI,
        family="mpt",
        activation="gelu",
        bias=False,
        norm_bias=False,
        embedding_norm=False,
        qkv_clip=0.5,
    ),
    "openelm": replace(
        LLAMA, family="openelm", heads=(4, 6), kv_heads=(2, 3), ffn=(48, 64), qk_norm=True
    ),
    "qwen3": replace(LLAMA, family="qwen3", qk_norm=True, tied=False, rope_scale=2.0),
    "olmo2": replace(
        LLAMA,
        family="olmo2",
        norm_place="both",
        qk_norm_joint=True,
        unrotated=(1,),
        rotary_dim=4,
        embedding_scale=2.0,
        logit_cap=3.0,
    ),
}

BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
LINKS = {"links": 2, "first_link": 10, "begin": 4, "end": 5}
"""Options of kv_link: ids that tiny decoders have."""


def byte_tokenizer(chat=True):
    """One token a byte; `<s>` before a text where special tokens are asked for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "</s>", "<pad>", "<unk>"]
    vocabulary = {token: i for i, token in enumerate([*special, *letters])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_lm(shape=LLAMA, seed=0, **kept):
    """A decoder with random weights and a byte tokenizer."""
    lm = random_lm(shape, seed=seed, threads=1, **kept)
    lm.tokenizer = byte_tokenizer()
    return lm


def tiny_prompt(
    documents=(9, 14, 5, 11),
    query=6,
    task=4,
    seed=0,
    question_seed=0,
):
    """Random tokens of these lengths and random words for rankers; `question_seed` changes the
    question alone.
    """
    draw = random.Random(seed)
    asked = random.Random(f"question {question_seed}")
    texts = tuple(" ".join(draw.choices("abcdefghijklmnop", k=count)) for count in documents)
    return Prompt(
        opening=_ids(draw, 3),
        preamble=_ids(draw, 7),
        documents=[_ids(draw, count) for count in documents],
        query=_ids(asked, query),
        task=_ids(draw, task),
        question=" ".join(asked.choices("abcdefghijklmnop", k=query)),
        document_texts=tuple(text.replace(" ", " w").replace("a", "wa", 1) for text in texts),
        gold=(1,),
        sources=tuple(Source(i, "", text) for i, text in enumerate(texts)),
    )


def _ids(draw, count):
    return [draw.randrange(4, VOCAB) for _ in range(count)]


def deeper(shape):
    """A shape with a third layer like its first: cache_blend reads it apart."""
    sizes = {name: getattr(shape, name) for name in ("heads", "kv_heads", "ffn")}
    return replace(shape, **{name: (*size, size[0]) for name, size in sizes.items()})


def side_by_side(lm, works, size):
    """The tasks of works that a batch scheduler does, in the order of the works."""
    with BatchScheduler(lm, size) as batch:
        tasks = [batch.submit(work) for work in works]
        while batch.unfinished:
            batch.step()
    return tasks


def encoder(folder):
    """A random BERT over single bytes as a folder in the hub's layout."""
    from transformers import BertConfig, BertModel

    return _saved(BertModel, BertConfig(**BERT), folder)


def cross_encoder(folder, classes=1):
    """A random classifier of pairs of byte strings, as a folder in the hub's layout."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_labels=classes, max_position_embeddings=64, **BERT)
    return str(_saved(BertForSequenceClassification, config, folder))


def _saved(kind, config, folder):
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    byte_tokenizer(chat=False).save_pretrained(folder)
    return folder


# ---- the reference: one dense pass over all tokens with a mask


def dense(lm, graph, bias=None, seen=None):
    """Logits (token, vocab) and attention weights (layer, head, query, key) of the whole graph in
    one pass.

    Plain attention over every pair of tokens, hidden ones masked by `seen`, default `mask(graph)`;
    no cache and none of the engine's layouts. `bias` (query, key) is added to every head's scores.
    """
    shape = lm.shape
    weights = lm.decoder.weights
    ids = torch.tensor([token for segment in graph for token in segment.ids])
    positions = torch.tensor(
        [p for segment in graph for p in segment.positions], dtype=torch.float64
    )
    hidden = torch.from_numpy(~(mask(graph) if seen is None else seen))
    x = weights.embedding[ids]
    if shape.embedding_norm:
        x = norm(weights.embedding_norm, x)
    attention = []
    for layer, heads, kv_heads in zip(weights.layers, shape.heads, shape.kv_heads, strict=True):
        qkv = F.linear(norm(layer.attention_norm, x), layer.qkv.weight, layer.qkv.bias)
        q, k, v = qkv.view(len(ids), heads + 2 * kv_heads, shape.head_dim).split(
            [heads, kv_heads, kv_heads], 1
        )
        if shape.position == "rope":
            q = rotated(q, positions, shape.rope_theta)
            k = rotated(k, positions, shape.rope_theta)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        raw = torch.einsum("qhd,khd->hqk", q, k) / shape.head_dim**0.5
        if shape.position == "alibi":
            distance = (positions[None, :] - positions[:, None]).float()
            raw = raw + torch.tensor(shape.alibi_slopes)[:, None, None] * distance
        raw = raw if bias is None else raw + bias
        attention.append(raw.masked_fill(hidden, float("-inf")).softmax(-1))
        mixed = torch.einsum("hqk,khd->qhd", attention[-1], v).reshape(len(ids), -1)
        x = x + F.linear(mixed, layer.out.weight, layer.out.bias)
        inner = F.linear(norm(layer.mlp_norm, x), layer.up.weight, layer.up.bias)
        if shape.gated:
            inner = F.silu(inner[:, : inner.shape[1] // 2]) * inner[:, inner.shape[1] // 2 :]
        else:
            inner = F.gelu(inner, approximate="tanh")
        x = x + F.linear(inner, layer.down.weight, layer.down.bias)
    return norm(weights.norm, x) @ weights.head.weight.T, torch.stack(attention)


def norm(norm, x):
    if norm.kind == "rms":
        return x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight
    return scaled if norm.bias is None else scaled + norm.bias


def rotated(x, positions, theta):
    """(token, head, dim): the pairs (i, i + dim/2) as complex numbers, turned by position *
    theta^(-2i/dim).
    """
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = (
        torch.complex(x[..., :half].double(), x[..., half:].double())
        * torch.polar(torch.ones_like(angle), angle)[:, None]
    )
    return torch.cat([turned.real, turned.imag], -1).float()
