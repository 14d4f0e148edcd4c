"""What the checkpoint families share: the names of tensors, and values of configs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ragauge.errors import UserError


@dataclass(frozen=True)
class Names:
    """Names of a family's tensors, without `.weight` and `.bias`; layers on the same input are stacked into one."""

    embedding: str
    norm: str
    layer: str  # prefix of the names below, {} stands for the layer's number
    attention_norm: str
    qkv: tuple[str, ...]
    out: str
    mlp_norm: str
    up: tuple[str, ...]
    down: str
    q_norm: str | None = None
    k_norm: str | None = None
    embedding_norm: str | None = None
    head: str = "lm_head"  # where it is not tied to the embedding
    root: str = ""  # a prefix of all names but the head's, which checkpoints of the bare model leave out
    arrange_qkv: Callable[[Tensor, int], Tensor] | None = None  # (rows, heads) -> all query, key, then value rows


def eos_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    """`eos_token_id` as a tuple, whichever of the three ways the config writes it."""
    ids = config.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def refuse(config: Mapping[str, Any], key: str, *accepted: Any) -> None:
    """Raise UserError if a config has a value that the decoder does not support; the caller adds the place."""
    value = config.get(key)
    if value is not None and value not in accepted:
        choices = ", ".join(map(repr, accepted))
        raise UserError(f"{key}: {value!r} is not supported; supported: {choices}")
