"""The key-value cache: one arena of tokens, in which every segment of a prompt is a span.

Parallel paths share spans (the preamble, say) instead of copying them; a row of a batch names the
spans that it attends to. Keys are stored rotated to their real-valued positions, so spans can be
joined in any order, and moved to other positions by rotating them on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ragauge.cost.hardware import STORED_BITS
from ragauge.cost.shape import Shape
from ragauge.engines.quantization import dequantize_groups, quantize_groups
from ragauge.engines.rope import rotate_further
from ragauge.engines.spans import Span, merge

Watch = Callable[[int, Tensor, Tensor, Tensor | None], None]
"""Called as (layer, queries (row, head, query, dim), keys (row, kv_head, key, dim), bias) before
each attention.
"""


PARTS = ("", ".scale", ".offset")  # of quantized keys or values in a store


class Content(NamedTuple):
    """Slots whose content has a name: those from `start` to `stop` hold the named content from
    `offset` on.
    """

    start: int
    stop: int
    name: str
    offset: int


class Tempered(NamedTuple):
    """Keys whose scores get a temperature and whose weight relative to all other keys gets a scale
    (APE).
    """

    keys: Tensor  # (token,) bool
    temperature: float
    scale: float


class KVCache:
    """Keys and values of every layer for up to `capacity` tokens; grows when more are reserved."""

    def __init__(
        self,
        shape: Shape,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        kv: str = "full",
        filled: int = 0,
    ) -> None:
        """Keys and values are in `dtype`, those of stored documents as `kv`
        (`cost.hardware.CACHE_TYPES`) says. The caller writes the `filled` slots before anything is
        read. The others become zero: uninitialized memory may hold NaN, and a key that a mask hides
        still counts, as 0 times its value.
        """
        self.shape = shape
        self.dtype = dtype
        self.kv = kv
        self.length = 0  # slots in use

        def empty(heads: int) -> Tensor:
            return torch.empty(heads, capacity, shape.head_dim, dtype=dtype, device=device)

        self.k, self.v = list(map(empty, shape.kv_heads)), list(map(empty, shape.kv_heads))
        for _, tensor in self.tensors():
            tensor[:, filled:].zero_()
        # (token,), real-valued
        self.positions = torch.zeros(capacity, dtype=torch.float32, device=device)
        # is shown each layer's queries and keys; not copied with the cache
        self.watch: Watch | None = None
        # (layer, states, positions=) -> what is added to the states after a layer's self-attention,
        # or None
        self.cross_attention: Callable[..., Tensor | None] | None = None
        self.ragged = False  # some head has fewer tokens than others
        self._contents: list[Content] = []  # the named slots, in order
        # further values of slots, by the names of `_initial`
        self._values: dict[str, list[Tensor]] = {}
        self._temper = (1.0, 1.0)  # temperature and scale of the tempered keys

    @property
    def capacity(self) -> int:
        return self.positions.shape[0]

    @property
    def bias(self) -> Tensor | None:
        """A bias of every attention score of a key (token,), fp32; None: none."""
        return self._values.get("bias", [None])[0]

    @property
    def tempered(self) -> Tempered | None:
        keys = self._values.get("tempered")
        return Tempered(keys[0], *self._temper) if keys else None

    @property
    def head_positions(self) -> list[Tensor] | None:
        """The positions of each head's tokens: a layer (kv_head, slot); inf: no token. None: those
        of `positions` in all heads.
        """
        return self._values.get("head_positions")

    @property
    def head_bias(self) -> list[Tensor] | None:
        """Like `bias`, of each head: a layer (kv_head, slot); None: nothing."""
        return self._values.get("head_bias")

    def _initial(self, name: str) -> list[Tensor]:
        """Initial further values of slots: one tensor (slot,), or a layer (kv_head, slot)."""
        if name == "bias":
            return [torch.zeros_like(self.positions)]
        if name == "tempered":
            return [torch.zeros_like(self.positions, dtype=torch.bool)]
        values = self.positions if name == "head_positions" else torch.zeros_like(self.positions)
        return [values.repeat(k.shape[0], 1) for k in self.k]

    def _set_values(self, name: str) -> list[Tensor]:
        """Further values of slots, to be changed."""
        if name not in self._values:
            self._values[name] = self._initial(name)
        return self._values[name]

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values in use, and of each head's biases."""
        biases = sum(len(by_head) * by_head.element_size() for by_head in self.head_bias or ())
        return self.length * (
            biases + sum(x.shape[0] * x.shape[2] * x.element_size() for _, x in self.tensors())
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of keys or values, (kv_head, slot, dim), with a name that is the same in all
        caches.
        """
        for kind, layers in (("k", self.k), ("v", self.v)):
            for layer, tensor in enumerate(layers):
                yield f"{kind}{layer}", tensor

    @property
    def stored_bits(self) -> int:
        """Bits of the keys and values of stored documents; 0: they are stored as cached."""
        return STORED_BITS.get(self.kv, 0)

    def store(self, span: Span) -> dict[str, Tensor]:
        """The keys and values of a span as a document store has them. Where that rounds them, they
        are rounded here, too, so that a document's first reader sees what later ones load.
        """
        at = slice(span.start, span.stop)
        if not self.stored_bits:
            return {name: tensor[:, at].contiguous() for name, tensor in self.tensors()}
        tensors = dict[str, Tensor]()
        for kind, dim, layers in (("k", 1, self.k), ("v", 2, self.v)):
            values = torch.cat([layer[:, at] for layer in layers])
            parts = quantize_groups(values, dim, self.stored_bits)
            tensors |= zip((kind + end for end in PARTS), parts, strict=True)
        self.restore(span, tensors)
        return tensors

    def restore(self, span: Span, tensors: Mapping[str, Tensor]) -> None:
        """Write what `store` returned to a span of as many slots."""
        at = slice(span.start, span.stop)
        if not self.stored_bits:
            for name, tensor in self.tensors():
                tensor[:, at] = tensors[name]
            return
        for kind, dim, layers in (("k", 1, self.k), ("v", 2, self.v)):
            codes, scale, offset = (tensors[kind + end].to(self.positions.device) for end in PARTS)
            values = dequantize_groups(codes, scale, offset, dim, self.stored_bits)
            for layer, part in zip(layers, values.split(list(self.shape.kv_heads)), strict=True):
                layer[:, at] = part

    def copy(self, source: KVCache, slots: slice, start: int) -> None:
        """Copy the keys, values and positions of another cache's slots to as many slots of this one
        from `start` on.
        """
        at = slice(start, start + slots.stop - slots.start)
        for (_, target), (_, origin) in zip(self.tensors(), source.tensors(), strict=True):
            target[:, at] = origin[:, slots]
        self.positions[at] = source.positions[slots]

    @property
    def plain(self) -> bool:
        """Whether attention is over keys and values alone, all of a slot in every head."""
        return not (self._values or self.watch or self.cross_attention)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more; growing copies the whole cache, so reserve early."""
        needed = self.length + tokens
        if needed <= self.capacity:
            return
        grown = self.like(max(needed, self.capacity + self.capacity // 2), self.length)
        grown._fill(self, slice(0, self.length))
        self.k = grown.k
        self.v = grown.v
        self.positions = grown.positions
        self._values = grown._values

    def append(self, source: KVCache, span: Span) -> None:
        """Add a span of another cache's slots at the end of this one."""
        self.reserve(len(span))
        self._fill(source, slice(span.start, span.stop))

    @torch.inference_mode()
    def add_bias(self, span: Span, value: float) -> None:
        """Add `value` to the attention scores of the span's keys, for all tokens read later."""
        self._set_values("bias")[0][span.start : span.stop] += value

    def drop_bias(self) -> None:
        """Drop what `add_bias` added."""
        self._values.pop("bias", None)

    @torch.inference_mode()
    def temper(self, span: Span, temperature: float, scale: float) -> None:
        """Give the span's keys and earlier tempered ones a temperature and scale: see
        `decoder.tempered_attention`.
        """
        self._set_values("tempered")[0][span.start : span.stop] = True
        self._temper = (temperature, scale)

    @torch.inference_mode()
    def move(self, span: Span, positions: Sequence[float]) -> None:
        """Move a span's tokens to other positions, one per token. Rotated keys are rotated further
        by the difference, k' = R(new - old) k, in fp32 and rounded once; repeated moves accumulate
        rounding errors. ALiBi's keys do not encode their position and are unchanged.
        """
        new = torch.tensor(list(positions), dtype=torch.float32, device=self.positions.device)
        at = slice(span.start, span.stop)
        for layer in range(self.shape.layers):
            old = (self.positions if self.head_positions is None else self.head_positions[layer])[
                ..., at
            ]
            self._rotate(layer, at, torch.where(old.isinf(), 0, new - old))
            if self.head_positions is not None:
                self.head_positions[layer][:, at] = torch.where(old.isinf(), old, new)
        self.positions[at] = new
        self.forget_names(span)

    @torch.inference_mode()
    def shift(self, span: Span, by: Sequence[float]) -> None:
        """Move a span's tokens by a distance, one a slot, from wherever each head has them; see
        `move`.
        """
        distance = torch.tensor(list(by), dtype=torch.float32, device=self.positions.device)
        at = slice(span.start, span.stop)
        for layer in range(self.shape.layers):
            self._rotate(layer, at, distance)
        for by_head in self.head_positions or ():
            by_head[:, at] += distance
        self.positions[at] += distance
        self.forget_names(span)

    def _rotate(self, layer: int, at: slice, distance: Tensor) -> None:
        if self.shape.is_rotated(layer):
            k = self.k[layer]
            k[:, at] = rotate_further(k[:, at], distance, self.shape, layer)

    @torch.inference_mode()
    def select_by_head(self, slots: Sequence[Sequence[Sequence[int]]], extra: int = 0) -> KVCache:
        """A new cache with the slots (layer, kv_head, slot) that each head has chosen, compacted
        from slot 0 on.

        Heads may have different numbers of tokens: the cache is as long as the longest head, and
        the unused slots of the others are masked. Tokens read into it later are in all heads.

        Raises:
            ValueError: no head has a token, or the cache has score biases.
        """
        counts = [len(chosen) for heads in slots for chosen in heads]
        longest = max(counts, default=0)
        device = self.positions.device
        if not longest or not self._values.keys().isdisjoint({"bias", "head_bias"}):
            raise ValueError(
                "select_by_head requires at least one token and a cache without score biases"
            )
        selected = self.like(longest + extra)
        selected.length = longest
        selected.ragged = len(set(counts)) > 1 or self.ragged
        positions = self.head_positions or self._initial("head_positions")
        for layer, (heads, new) in enumerate(
            zip(slots, selected._set_values("head_positions"), strict=True)
        ):
            padded = torch.tensor(
                [[*chosen, *[-1] * (longest - len(chosen))] for chosen in heads], device=device
            )
            from_slots = (torch.arange(len(heads), device=device)[:, None], padded.clamp(min=0))
            new.fill_(torch.inf)
            new[:, :longest] = positions[layer][from_slots].masked_fill(padded < 0, torch.inf)
            selected.k[layer][:, :longest] = self.k[layer][from_slots]
            selected.v[layer][:, :longest] = self.v[layer][from_slots]
        return selected

    @torch.inference_mode()
    def replace_values(self, layer: int, values: Tensor, bias: Tensor) -> None:
        """Replace a layer's first values (kv_head, slot, dim) of a cache with slots by head, and
        its biases.
        """
        self.v[layer][:, : values.shape[1]] = values.to(self.dtype)
        self._set_values("head_bias")[layer][:, : bias.shape[1]] = bias

    @torch.inference_mode()
    def truncate(self, length: int) -> None:
        """Drop all slots from `length` on, with their biases and names."""
        self.length = min(self.length, length)
        self._contents = self._named(Span(0, length))
        for name in self._values.keys() - {"head_positions"}:
            for values in self._values[name]:
                values[..., self.length :] = 0

    def name_span(self, span: Span, name: str) -> None:
        """Name the content of a span whose slots have no name."""
        insort(self._contents, Content(span.start, span.stop, name, 0))

    def forget_names(self, span: Span) -> None:
        """Forget the names of a span's slots, whose content is about to change."""
        self._contents = [
            *self._named(Span(0, span.start)),
            *self._named(Span(span.stop, self.capacity)),
        ]

    def contents(self, spans: Sequence[Span]) -> list[tuple[str, int, int]] | None:
        """The names in the spans: (name, its first token, its last), in order; None if a slot has
        no name or a bias.
        """
        if self._values:
            return None
        names = []
        for span in merge(spans):
            named = self._named(span)
            if sum(c.stop - c.start for c in named) != len(span):
                return None
            names += [(c.name, c.offset, c.offset + c.stop - c.start) for c in named]
        return names

    def _named(self, span: Span) -> list[Content]:
        """The named slots of a span."""
        named = []
        for c in self._contents:
            start = max(c.start, span.start)
            stop = min(c.stop, span.stop)
            if start < stop:
                named.append(Content(start, stop, c.name, c.offset + start - c.start))
        return named

    def slots(self, spans: Sequence[Span]) -> Tensor:
        """The slot numbers of the spans, in order: (token,)."""
        device = self.positions.device
        return torch.cat([torch.arange(s.start, s.stop, device=device) for s in spans])

    def select(self, spans: Sequence[Span], extra: int = 0) -> KVCache:
        """A new cache with the spans' tokens side by side and room for `extra` more."""
        spans = merge(spans)
        filled = sum(map(len, spans))
        joined = self.like(filled + extra, filled)
        for span in spans:
            joined._fill(self, slice(span.start, span.stop))
        return joined

    def like(self, capacity: int, filled: int = 0) -> KVCache:
        """An empty cache of the same kind, whose `filled` slots the caller writes."""
        return KVCache(self.shape, capacity, self.dtype, self.positions.device, self.kv, filled)

    def _fill(self, source: KVCache, slots: slice) -> None:
        stop = self.length + slots.stop - slots.start
        self.copy(source, slots, self.length)
        for name in self._values.keys() | source._values.keys():
            others = source._values.get(name) or source._initial(name)
            for values, other in zip(self._set_values(name), others, strict=True):
                values[..., self.length : stop] = other[..., slots]
        if "tempered" in source._values:
            self._temper = source._temper
        self.ragged = self.ragged or source.ragged
        moved = self.length - slots.start
        self._contents += [
            c._replace(start=c.start + moved, stop=c.stop + moved)
            for c in source._named(Span(slots.start, slots.stop))
        ]
        self.length = stop
