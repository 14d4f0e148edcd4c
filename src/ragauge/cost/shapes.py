"""Shapes of named models, so that their cost can be computed without their weights."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ragauge.cost.shape import Shape
from ragauge.errors import UserError, in_any_case, unknown

PER_LAYER = ("heads", "kv_heads", "ffn")


def names() -> list[str]:
    """The models whose shapes are known, sorted."""
    return sorted(_entries())


def named(name: str) -> Shape:
    """The shape of a model of `shapes.yaml`, in any case.

    Raises:
        UserError: an unknown name, with the choices.
    """
    entries = _entries()
    known = in_any_case(name, entries)
    if known not in entries:
        raise UserError(
            f"{unknown('model shape', name, entries)}; or the folder of a checkpoint, whose"
            " config.json suffices"
        )
    entry = dict(entries[known])
    layers = entry.pop("layers")
    for key, value in entry.items():
        if isinstance(value, list):
            entry[key] = tuple(value)
        elif key in PER_LAYER:  # one number for all layers
            entry[key] = (value,) * layers
    if entry["position"] == "alibi":
        entry["alibi_slopes"] = alibi_slopes(entry["heads"][0])
    return Shape(**entry)


def with_context(shape: Shape, tokens: int) -> Shape:
    """The shape with room for at least `tokens` positions: costs can exceed the trained context."""
    return replace(shape, max_context=max(shape.max_context, tokens))


def alibi_slopes(heads: int, bias_max: float = 8.0) -> tuple[float, ...]:
    """ALiBi's slope of each head (Press et al. 2022): a geometric series, interleaved if heads is
    not a power of 2.
    """
    power = 2 ** math.ceil(math.log2(heads))
    slopes = tuple(2.0 ** -(bias_max * (i + 1) / power) for i in range(power))
    return slopes if power == heads else (slopes[1::2] + slopes[::2])[:heads]


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes()))
