"""Rotary positions of a checkpoint: its base frequencies, how a `rope_type` scales them, and up to
which length.
"""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import torch

from ragauge.engines.families._parts import Config
from ragauge.errors import UserError, unknown

COMMON = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
}
# of each type beyond the common ones; sections of multimodal positions are all the same for text
KEYS = {
    "default": {"mrope_section"},
    "linear": {"factor"},
    "dynamic": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "longrope": {"factor", "attention_factor", "short_factor", "long_factor"},
    "yarn": {
        "factor",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    },
}
TOP_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")


def rope_fields(
    config: Config,
    dim: int,
    partial: bool = False,
    default_theta: float = 10_000.0,
    others: Collection[str] = (),
) -> dict[str, Any]:
    """The fields of a `Shape` that state the rotary positions of heads (dim,), as transformers
    reads a config.

    A `partial` family rotates `partial_rotary_factor` of a head; it reads the keys `rope_...` of
    `others` itself.

    Raises:
        UserError: an unknown type or key, a head that rotates in part where the family has none,
            and a `max_context` (of `read_shape`) beyond what has one set of frequencies.
        KeyError: a key that the type requires is missing.
    """
    read_keys = (*TOP_KEYS, *others)
    for key, value in config.items():
        if key.startswith(("rope_", "rotary_")) and value and key not in read_keys:
            raise UserError(f"{key}: {value!r} is not supported; read are {', '.join(read_keys)}")
    rope = _parameters(config)
    kind = rope_type(config)
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor")) or 1.0
    if share != 1 and not partial:
        raise UserError(
            f"partial_rotary_factor: {share!r} is not supported for {config.get('model_type')}"
        )
    max_context = config.get("max_context") or 0
    if kind == "dynamic" and max_context > config["max_position_embeddings"]:
        raise UserError(
            f"max_context {max_context}: frequencies of type dynamic change with the length of a "
            "prompt beyond max_position_embeddings, so that cached keys would be wrong"
        )
    rotary = int(dim * share)
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or default_theta)
    fields: dict[str, Any] = {"rope_theta": theta, "rotary_dim": None if rotary == dim else rotary}
    if kind == "linear":
        return fields | {"rope_scale": float(rope["factor"])}
    if kind in ("llama3", "yarn", "longrope"):
        fields |= _divided(config, kind, theta, rotary)
    return fields


def trained_context(config: Config) -> int:
    """Tokens within which the frequencies of `rope_fields` hold, whatever the prompt's length. A
    `longrope` model has other frequencies beyond its original length, and keys that were cached
    with the one set must not be mixed with the other's. The first is used, unless the config's
    `max_context`, which `read_shape` adds, is beyond it.
    """
    trained: int = config["max_position_embeddings"]
    is_short = rope_type(config) == "longrope" and not _is_long(config)
    return min(trained, _original_length(config)) if is_short else trained


def _parameters(config: Config) -> dict[str, Any]:
    """The keys of positions, of layers without a window where others have their own, without
    keys of no value.
    """
    stated: Any = config.get("rope_scaling") or config.get("rope_parameters") or {}
    stated = stated.get("full_attention", stated)
    return {key: value for key, value in stated.items() if value is not None}


def rope_type(config: Config) -> str:
    """The type of a config's rotary positions.

    Raises:
        UserError: one, or a key of it, that is not read.
    """
    rope = _parameters(config)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in KEYS:
        raise unknown("rope type", kind, KEYS)
    keys = COMMON | KEYS[kind]
    for key in rope:
        if key not in keys:
            raise unknown(f"key of rope type {kind}", key, sorted(keys))
    return str(kind)


def _original_length(config: Config) -> int:
    key = "original_max_position_embeddings"
    return int(config.get(key) or _parameters(config).get(key) or config["max_position_embeddings"])


def _is_long(config: Config) -> bool:
    """Whether a model is to read more than its original length."""
    return (config.get("max_context") or 0) > _original_length(config)


def _divided(config: Config, kind: str, theta: float, dim: int) -> dict[str, Any]:
    """The fields of a type that divides each frequency of its own: `llama3`, `yarn` (arXiv
    2309.00071) or `longrope` (arXiv 2402.13753).

    Args:
        kind: The type.
        theta: The base of the frequencies that are divided.
        dim: Numbers of a head that are rotated.

    Raises:
        UserError: `longrope` has not one factor for each frequency.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        **_parameters(config),
        "rope_theta": theta,
        "partial_rotary_factor": 1.0,
        "original_max_position_embeddings": _original_length(config),
    }
    sizes: Any = SimpleNamespace(
        rope_parameters=rope,
        standardize_rope_params=lambda: None,
        head_dim=dim,
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=config["max_position_embeddings"],
    )
    name = f"{'long' if _is_long(config) else 'short'}_factor"
    if kind == "longrope" and len(rope[name]) != dim // 2:
        raise UserError(f"{name}: must have {dim // 2} numbers, not {len(rope[name])}")
    inverse, factor = ROPE_INIT_FUNCTIONS[kind](sizes, seq_len=config.get("max_context"))
    plain = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    return {"rope_divisors": tuple((plain / inverse).tolist()), "rope_attention_factor": factor}
