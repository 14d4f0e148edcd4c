"""RETRO's architecture as Norlund et al. (2023) released it, once more and plainly: neighbours
padded to one length.

It works on a checkpoint's tensors by their released names and on the settings of its retro.json.
"""

import json
import math
import shutil

import torch

from ragauge.assets import resolver
from ragauge.cli._main import main
from ragauge.io.records import SequenceRecord, read_kind
from ragauge.pipelines.modes._retro import RetroLM, read_folder
from retro_parts import write_chunks, write_database

CHUNK = 64
NEIGHBOUR = 128
MIXED = "multi_head_attention"
BIAS = f"{MIXED}.positional_bias.relative_attention_bias.weight"
SETTINGS = {
    "num_embeddings": 260,
    "pad_token_idx": 0,
    "chunk_size": CHUNK,
    "dropout_p": 0.1,
    "enc_hidden_dim": 24,
    "enc_num_layers": 2,
    "enc_ffn_dim": 40,
    "enc_num_heads": 2,
    "enc_qkv_dim": 24,
    "enc_ca_layers": [1],
    "enc_sa_pos_bias_num_buckets": 96,  # fewer than there are distances, so that some are clamped
    "enc_ca_pos_bias_num_buckets": 101,
    "dec_hidden_dim": 32,
    "dec_num_layers": 4,
    "dec_ffn_dim": 48,
    "dec_num_heads": 4,
    "dec_qkv_dim": 32,
    "dec_cca_layers": [1, 3],
    "dec_sa_pos_bias_num_buckets": 100,
    "dec_cca_pos_bias_num_buckets": 192,
}


def released_state(settings=SETTINGS, seed=0):
    """Random tensors by their released names."""
    made = torch.Generator().manual_seed(seed)
    decoder, encoder = (settings[f"{side}_hidden_dim"] for side in ("dec", "enc"))
    shapes = {
        "base.dec_embs.weight": (settings["num_embeddings"], decoder),
        "base.encoder.enc_embs.weight": (settings["num_embeddings"], encoder),
        "base.final_layer_norm.scale": (decoder,),
        "lm_head.weight": (settings["num_embeddings"], decoder),
    }
    sides = (
        ("dec", "base.decoder", decoder, encoder),
        ("enc", "base.encoder.layers", encoder, decoder),
    )
    for side, at, width, source in sides:
        kind = "cca" if side == "dec" else "ca"
        heads = settings[f"{side}_num_heads"]
        ffn = settings[f"{side}_ffn_dim"]
        for layer in range(settings[f"{side}_num_layers"]):
            own, cross, forward = (f"{at}.{layer}.{part}" for part in range(3))
            shapes |= {f"{own}.ln.scale": (width,), f"{own}.qkv_proj.weight": (3 * width, width)}
            shapes |= {f"{own}.{MIXED}.final_proj.weight": (width, width)}
            shapes |= {f"{own}.{BIAS}": (settings[f"{side}_sa_pos_bias_num_buckets"], heads)}
            if layer in settings[f"{side}_{kind}_layers"]:
                shapes |= {f"{cross}.ln.scale": (width,), f"{cross}.q_proj.weight": (width, width)}
                shapes |= {f"{cross}.kv_proj.weight": (2 * width, source)}
                shapes |= {f"{cross}.{MIXED}.final_proj.weight": (width, width)}
                shapes |= {
                    f"{cross}.{BIAS}": (settings[f"{side}_{kind}_pos_bias_num_buckets"], heads)
                }
            shapes |= {
                f"{forward}.layer_norm.scale": (width,),
                f"{forward}.wo.weight": (width, ffn),
            }
            shapes |= {f"{forward}.wi_{i}.weight": (ffn, width) for i in range(2)}
    return {
        name: torch.randn(shape, generator=made) * _scale(name, shape)
        for name, shape in shapes.items()
    }


def _scale(name, shape):
    return 1.0 if len(shape) == 1 or name.endswith(BIAS) or "embs" in name else shape[1] ** -0.5


def write_released(folder, settings=SETTINGS, seed=0):
    """`model.ckpt` as PyTorch Lightning writes it, beside `retro.json`, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "retro.json").write_text(json.dumps(dict(settings)))
    trained = {
        "epoch": 0,
        "global_step": 3,
        "pytorch-lightning_version": "1.7.4",
        "loops": {"fit_loop": {}},
    }
    state = released_state(settings, seed)
    torch.save(
        {**trained, "state_dict": state, "optimizer_states": [{"state": {}}]}, folder / "model.ckpt"
    )
    return folder


def write_beside_database(root):
    """`released` beside databases: `own` in its tokens, `db` in those of `model`. RAGAUGE_HOME is
    the caller's.
    """
    write_database(root)
    shutil.copyfile(
        root / "model" / "tokenizer.json", write_released(root / "released") / "tokenizer.json"
    )
    write_chunks(root, "own", f"path:{root / 'released'}")
    return root


def read_released(root):
    """The checkpoint of `write_beside_database` in torch."""
    return RetroLM(read_folder(resolver.resolve(f"path:{root / 'released'}")))


WITHOUT_RETRIEVAL = [
    "piperag",
    "run",
    "--mode",
    "retro",
    "--schedule",
    "no_retrieval",
    "--tokens",
    "100",
    "--limit",
    "2",
]


def scored(root, out, *options):
    """Likelihoods of two texts of `own` without neighbours, by the command line."""
    where = ["--database", str(root / "own"), "--model", f"path:{root / 'released'}"]
    how = ["--scoring", "after_first_query", "--threads", "1"]
    assert main([*WITHOUT_RETRIEVAL, *where, *how, *options, "--out", str(out)]) == 0
    return [record.nll or math.nan for record in read_kind(out, SequenceRecord)]


class Released:
    """The model of a checkpoint."""

    def __init__(self, state, settings=SETTINGS):
        self.state = state
        self.settings = settings

    def logits(self, ids, found, interval):
        """(token, vocab) of a sequence, of whose window i `found[i]` are the neighbours."""
        settings = self.settings
        x = self.state["base.dec_embs.weight"][torch.tensor(list(ids))]
        causal = torch.ones(len(ids), len(ids)).tril()
        memories = []
        # (neighbour, 128)
        real = [torch.tensor([_padded(text) for text in texts]) != 0 for texts in found]
        for layer in range(settings["dec_num_layers"]):
            at = f"base.decoder.{layer}"
            x = x + self._self_attention(
                f"{at}.0", x, causal, settings["dec_num_heads"], bidirectional=False
            )
            if layer == min(settings["dec_cca_layers"]):
                memories = [
                    self._encoded(texts, x[i * interval : i * interval + CHUNK])
                    for i, texts in enumerate(found)
                ]
            if layer in settings["dec_cca_layers"]:
                change = torch.zeros_like(x)
                for i, memory in enumerate(memories):
                    start = CHUNK - 1 + i * interval
                    some = x[start : start + interval]
                    mask = real[i].flatten().float()
                    keys = memory.flatten(0, 1)  # neighbours end to end
                    mixed = self._cross_attention(
                        f"{at}.1", some, keys, mask, settings["dec_num_heads"]
                    )
                    change[start : start + interval] = mixed if mask.any() else 0.0
                x = x + change
            x = x + self._feed_forward(f"{at}.2", x)
        return self._norm("base.final_layer_norm.scale", x) @ self.state["lm_head.weight"].T

    def _encoded(self, texts, query):
        """(neighbour, 128, width)."""
        settings = self.settings
        made = []
        for text in map(_padded, texts):
            x = self.state["base.encoder.enc_embs.weight"][torch.tensor(text)]
            mask = (torch.tensor(text) != 0).float()
            for layer in range(settings["enc_num_layers"]):
                at = f"base.encoder.layers.{layer}"
                x = x + self._self_attention(
                    f"{at}.0", x, mask[None], settings["enc_num_heads"], bidirectional=True
                )
                if layer in settings["enc_ca_layers"]:
                    x = x + self._cross_attention(
                        f"{at}.1", x, query, torch.ones(len(query)), settings["enc_num_heads"]
                    )
                x = x + self._feed_forward(f"{at}.2", x)
            made.append(x)
        return torch.stack(made)

    def _self_attention(self, at, x, mask, heads, *, bidirectional):
        q, k, v = (self._norm(f"{at}.ln.scale", x) @ self.state[f"{at}.qkv_proj.weight"].T).chunk(
            3, -1
        )
        return self._attention(at, q, k, v, mask, heads, bidirectional=bidirectional)

    def _cross_attention(self, at, x, source, mask, heads):
        q = self._norm(f"{at}.ln.scale", x) @ self.state[f"{at}.q_proj.weight"].T
        k, v = (source @ self.state[f"{at}.kv_proj.weight"].T).chunk(2, -1)
        return self._attention(at, q, k, v, mask[None], heads, bidirectional=True)

    def _attention(
        self,
        at,
        q,
        k,
        v,
        mask,
        heads,
        *,
        bidirectional,
    ):
        table = self.state[f"{at}.{BIAS}"]
        dim = q.shape[1] // heads
        mixed = []
        count = len(table)
        most = count // 2 if bidirectional else 0
        least = most - (count - 1)
        distance = torch.arange(len(k))[None] - torch.arange(len(q))[:, None]
        bias = table[distance.clamp(least, most) - least]  # (query, key, head)
        for head in range(heads):
            part = slice(head * dim, (head + 1) * dim)
            scores = q[:, part] @ k[:, part].T + bias[:, :, head] - 10_000.0 * (1 - mask)
            mixed.append(scores.softmax(-1) @ v[:, part])
        return torch.cat(mixed, -1) @ self.state[f"{at}.{MIXED}.final_proj.weight"].T

    def _feed_forward(self, at, x):
        y = self._norm(f"{at}.layer_norm.scale", x)
        gate, up = (y @ self.state[f"{at}.wi_{i}.weight"].T for i in range(2))
        return (
            torch.nn.functional.gelu(gate, approximate="tanh")
            * up
            @ self.state[f"{at}.wo.weight"].T
        )

    def _norm(self, name, x):
        root = x.norm(2, dim=-1, keepdim=True) * x.shape[-1] ** -0.5
        return self.state[name] * (x / (root + 1e-8))


def _padded(text):
    return [*text, *[0] * (NEIGHBOUR - len(text))]
