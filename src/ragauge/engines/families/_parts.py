"""Common parts of the checkpoint families: the names of tensors, and values of configs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.errors import UserError

Config = Mapping[str, Any]
"""A checkpoint's config.json."""


@dataclass(frozen=True)
class Names:
    """Names of a family's tensors, without `.weight` and `.bias`; layers on the same input are
    stacked into one.
    """

    embedding: str
    norm: str
    layer: str  # prefix of the names below, {} stands for the layer's number
    qkv: tuple[str, ...]
    out: str
    up: tuple[str, ...]
    down: str
    attention_norm: str | None = None
    attention_post_norm: str | None = None
    mlp_norm: str | None = None
    mlp_post_norm: str | None = None
    q_norm: str | None = None
    k_norm: str | None = None
    embedding_norm: str | None = None
    head: str = "lm_head"  # where it is not tied to the embedding
    # a prefix of all names but the head's, which checkpoints of the bare model leave out
    root: str = ""

    def stacked(self, place: str, is_bare: bool) -> list[str]:
        """The tensors of a place in `weights.Weights`: layers on the same input become one.

        Args:
            place: Such as `layers.3.qkv`.
            is_bare: Whether the checkpoint leaves out the root.
        """
        *layer, part = place.split(".")
        prefix = "" if is_bare or part == "head" else self.root
        if layer:
            prefix += f"{self.layer.format(layer[1])}."
        names = getattr(self, part)
        return [prefix + name for name in ([names] if isinstance(names, str) else names)]


def eos_ids(config: Config) -> tuple[int, ...]:
    """`eos_token_id` as a tuple, whichever of the three ways the config writes it."""
    ids = config.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def windows(config: Config, window: int | None, slides: Callable[[int], bool]) -> tuple[int, ...]:
    """The sliding window of each layer, 0 for none; () where no layer has one.

    A config without `layer_types` has one where a layer `slides`.
    """
    layers = config["num_hidden_layers"]
    types = config.get("layer_types")
    if types is None:
        sliding = [*map(slides, range(layers))]
    elif len(types) != layers or not {*types} <= {"full_attention", "sliding_attention"}:
        raise UserError(
            f"layer_types: must be full_attention or sliding_attention for each of {layers} layers"
        )
    else:
        sliding = [kind == "sliding_attention" for kind in types]
    if not any(sliding):
        return ()
    if window is None:
        raise UserError("layer_types: sliding_attention needs a sliding_window")
    return tuple(window if slides_here else 0 for slides_here in sliding)


def refuse(config: Config, key: str, *accepted: Any) -> None:
    """Raise UserError if a config has a value that the decoder does not support; the caller adds
    the place.
    """
    value = config.get(key)
    if value is not None and value not in accepted:
        choices = ", ".join(map(repr, accepted))
        raise UserError(f"{key}: {value!r} is not supported; supported: {choices}")
