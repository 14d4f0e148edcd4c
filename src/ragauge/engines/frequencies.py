"""Rotary positions of a checkpoint: its base frequencies, how a `rope_type` scales them, and up to which length."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from ragauge.errors import UserError, unknown

DEFAULT_THETA = 10_000.0
COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
KEYS = {  # of each type beyond the common ones; sections of multimodal positions are all the same for text
    "default": {"mrope_section"},
    "linear": {"factor"},
    "dynamic": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "longrope": {"factor", "attention_factor", "short_factor", "long_factor", "original_max_position_embeddings"},
    "yarn": {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
    | {"original_max_position_embeddings"},
}
TOP_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")


def rope_fields(
    config: Mapping[str, Any],
    dim: int,
    *,
    partial: bool = False,
    default_theta: float = DEFAULT_THETA,
    others: Collection[str] = (),
) -> dict[str, Any]:
    """The fields of a `Shape` that state its rotary positions, as transformers takes them from a config.

    Where both `rope_scaling` and `rope_parameters` are stated the first is taken alone. Long-range factors
    (`longrope`) are those of `trained_context`; `dynamic` scales nothing up to it.

    Args:
        dim: dimensions of a head.
        partial: the family rotates `partial_rotary_factor` of them.
        others: keys `rope_...` and `rotary_...` of the config that the family reads itself.

    Raises:
        UserError: an unknown type or key; a head that rotates in part where the family has none.
        KeyError: a key that the type requires is missing.
    """
    for key, value in config.items():
        if key.startswith(("rope_", "rotary_")) and value and key not in {*TOP_KEYS, *others}:
            raise UserError(f"{key}: {value!r} is not supported; read are {', '.join((*TOP_KEYS, *others))}")
    rope = _parameters(config)
    kind = rope_type(config)
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor")) or 1.0
    if share != 1 and not partial:
        raise UserError(f"partial_rotary_factor: {share!r} is not supported for {config.get('model_type')}")
    rotary, theta = int(dim * share), float(rope.get("rope_theta") or config.get("rope_theta") or default_theta)
    fields: dict[str, Any] = {"rope_theta": theta, "rotary_dim": None if rotary == dim else rotary}
    if kind == "linear":
        fields["rope_scale"] = float(rope["factor"])
    elif kind == "llama3":
        fields["rope_divisors"] = _llama3_divisors(config, rope, theta, rotary)
    elif kind == "yarn":
        fields |= _yarn(config, rope, theta, rotary)
    elif kind == "longrope":
        fields |= _longrope(config, rope, rotary)
    return fields


def trained_context(config: Mapping[str, Any]) -> int:
    """Tokens within which the frequencies of `rope_fields` hold, whatever the prompt's length.

    A `longrope` model has one set of frequencies up to its original length and one beyond; keys that were cached with
    the first are wrong beside the second. So the first is used, unless the config's `max_context` (what the user asks
    for, see `read_shape`) is beyond it.
    """
    trained: int = config["max_position_embeddings"]
    rope = _parameters(config)
    if rope_type(config) == "longrope" and not _is_long(config, rope):
        return min(trained, _original_length(config, rope))
    return trained


def check_context(config: Mapping[str, Any], max_context: int) -> None:
    """Raise UserError if the frequencies of a config change with each prompt's length before `max_context` tokens."""
    trained = config.get("max_position_embeddings", max_context)
    if max_context > trained and rope_type(config) == "dynamic":
        reason = f"positions of type dynamic change with the length of each prompt beyond {trained}"
        raise UserError(f"max_context {max_context}: {reason}, so that cached keys would be wrong")


def _parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is stated of positions, of layers without a window where others have their own, without keys of no value."""
    stated = config.get("rope_scaling") or config.get("rope_parameters") or {}
    stated = stated.get("full_attention", stated)
    return {key: value for key, value in stated.items() if value is not None}


def rope_type(config: Mapping[str, Any]) -> str:
    """The type of a config's rotary positions; raises UserError for one, or a key of it, that is not read."""
    rope = _parameters(config)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in KEYS:
        raise UserError(f"rope type {kind!r} is not supported; supported: {', '.join(KEYS)}")
    for key in rope:
        if key not in (known := COMMON | KEYS[kind]):
            raise unknown(f"key of rope type {kind}", key, sorted(known))
    return str(kind)


def _original_length(config: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    """Tokens of the context before it was extended."""
    key = "original_max_position_embeddings"
    return int(config.get(key) or rope.get(key) or config["max_position_embeddings"])


def _llama3_divisors(config: Mapping[str, Any], rope: Mapping[str, Any], theta: float, dim: int) -> tuple[float, ...]:
    """Divisors of Llama 3.1 and later: 1 for short waves, `factor` for long ones, and between them the inverse of a
    line through both."""
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    original, divisors = _original_length(config, rope), []
    for i in range(0, dim, 2):
        waves = original * theta ** (-i / dim) / (2 * math.pi)  # in the context that the model was trained on first
        divisors.append(_between(factor, (waves - low) / (high - low)))
    return tuple(divisors)


def _yarn(config: Mapping[str, Any], rope: Mapping[str, Any], theta: float, dim: int) -> dict[str, Any]:
    """YaRN (arXiv 2309.00071, section 3): divisors by part of the frequencies, and a factor of queries and keys."""
    original, factor = _original_length(config, rope), float(rope["factor"])

    def index_of(rotations: float) -> float:
        """The frequency, as a real index, that turns this often within the original length."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index_of(rope.get("beta_fast") or 32), index_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low or 0.001

    def magnitude(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    own, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    default = magnitude(own) / magnitude(all_dim) if own and all_dim else magnitude(1)
    divisors = tuple(_between(factor, 1 - (i - low) / width) for i in range(dim // 2))
    return {"rope_divisors": divisors, "rope_attention_factor": float(rope.get("attention_factor", default))}


def _longrope(config: Mapping[str, Any], rope: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """LongRoPE (arXiv 2402.13753): a divisor of each frequency, from one of two lists."""
    original = _original_length(config, rope)
    name = "long_factor" if _is_long(config, rope) else "short_factor"
    divisors = tuple(map(float, rope[name]))
    if len(divisors) != dim // 2:
        raise UserError(f"{name}: must have {dim // 2} numbers, one a rotary frequency, not {len(divisors)}")
    factor = float(rope.get("factor") or config["max_position_embeddings"] / original)
    default = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {"rope_divisors": divisors, "rope_attention_factor": float(rope.get("attention_factor", default))}


def _is_long(config: Mapping[str, Any], rope: Mapping[str, Any]) -> bool:
    """Whether a longrope model is to read more than its original length."""
    return (config.get("max_context") or 0) > _original_length(config, rope)


def _between(factor: float, share: float) -> float:
    """What a frequency is divided by: 1 at a share of 1 and above, `factor` at 0 and below."""
    share = min(max(share, 0.0), 1.0)
    return 1 / ((1 - share) / factor + share)
