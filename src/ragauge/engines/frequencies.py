"""Rotary positions of a checkpoint: its base frequencies, how a `rope_type` scales them, and up to
which length.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

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
    `others` itself. Raises UserError for an unknown type or key, a head that rotates in part where
    the family has none, and a `max_context` (of `read_shape`) beyond what has one set of
    frequencies; KeyError for a key that the type requires.
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
    scaling = {"llama3": _llama3, "yarn": _yarn, "longrope": _longrope}.get(kind)
    return fields | scaling(config, theta, rotary) if scaling else fields


def trained_context(config: Config) -> int:
    """Tokens within which the frequencies of `rope_fields` hold, whatever the prompt's length. A
    `longrope` model has other frequencies beyond its original length, and keys that were cached
    with the one set must not be mixed with the other's. The first is used, unless the config's
    `max_context`, which `read_shape` adds, is beyond it.
    """
    trained: int = config["max_position_embeddings"]
    is_short = rope_type(config) == "longrope" and _reach(config) == "short"
    return min(trained, _original_length(config)) if is_short else trained


def _parameters(config: Config) -> dict[str, Any]:
    """The keys of positions, of layers without a window where others have their own, without
    keys of no value.
    """
    stated: Any = config.get("rope_scaling") or config.get("rope_parameters") or {}
    stated = stated.get("full_attention", stated)
    return {key: value for key, value in stated.items() if value is not None}


def rope_type(config: Config) -> str:
    """The type of a config's rotary positions; raises UserError for one, or a key of it, that is
    not read.
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


def _reach(config: Config) -> str:
    """Whether a longrope model is to read more than its original length: "long" or "short"."""
    return "long" if (config.get("max_context") or 0) > _original_length(config) else "short"


def _llama3(config: Config, theta: float, dim: int) -> dict[str, Any]:
    """Llama 3.1 and later: frequencies by how many of their waves the original context has."""
    rope = _parameters(config)
    original = _original_length(config)
    factor, low, high = (
        float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    waves = (original * theta ** (-i / dim) / (2 * math.pi) for i in range(0, dim, 2))
    divisors = tuple(_between(factor, (count - low) / (high - low)) for count in waves)
    return {"rope_divisors": divisors}


def _yarn(config: Config, theta: float, dim: int) -> dict[str, Any]:
    """YaRN (arXiv 2309.00071, section 3): divisors by part of the frequencies, and a factor of
    queries and keys.
    """
    rope = _parameters(config)
    original = _original_length(config)
    factor = float(rope["factor"])
    turns = (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1)
    # the frequencies, as real indices, that turn this often within the original length
    low, high = (
        dim * math.log(original / (count * 2 * math.pi)) / (2 * math.log(theta)) for count in turns
    )
    if rope.get("truncate", True):
        low = math.floor(low)
        high = math.ceil(high)
    low = max(low, 0)
    width = min(high, dim - 1) - low or 0.001
    growth = 0.1 * math.log(max(factor, 1))
    mscale = rope.get("mscale")
    all_dim = rope.get("mscale_all_dim")
    default = (1 + growth * mscale) / (1 + growth * all_dim) if mscale and all_dim else 1 + growth
    divisors = tuple(_between(factor, 1 - (i - low) / width) for i in range(dim // 2))
    return _divided(rope, divisors, default)


def _longrope(config: Config, _: float, dim: int) -> dict[str, Any]:
    """LongRoPE (arXiv 2402.13753): a divisor of each frequency, from one of two lists."""
    rope = _parameters(config)
    original = _original_length(config)
    name = f"{_reach(config)}_factor"
    divisors = tuple(map(float, rope[name]))
    if len(divisors) != dim // 2:
        raise UserError(
            f"{name}: must have {dim // 2} numbers, one a rotary frequency, not {len(divisors)}"
        )
    factor = float(rope.get("factor") or config["max_position_embeddings"] / original)
    default = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return _divided(rope, divisors, default)


def _divided(
    rope: Mapping[str, Any], divisors: tuple[float, ...], default: float
) -> dict[str, Any]:
    """The fields of a type that divides frequencies; `default`: factor of queries and keys."""
    factor = float(rope.get("attention_factor", default))
    return {"rope_divisors": divisors, "rope_attention_factor": factor}


def _between(factor: float, share: float) -> float:
    """The divisor of a frequency: 1 at a share of 1 and above, `factor` at 0 and below."""
    share = min(max(share, 0.0), 1.0)
    return 1 / ((1 - share) / factor + share)
