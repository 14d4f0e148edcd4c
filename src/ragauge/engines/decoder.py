"""One readable transformer for every checkpoint family: its forward pass over a KV cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.flop import Layers
from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache, Tempered
from ragauge.engines.fused import FusedLayers, fuse, is_fusable
from ragauge.engines.kernels import choice, operations
from ragauge.engines.layout import Layout, Part
from ragauge.engines.rope import Rotation, alibi_bias, rotation
from ragauge.engines.weights import Layer, Weights

# of inner units that are in memory together on a CPU: larger tensors get new pages each time
MLP_BYTES = 8 << 20
# tokens of the vocabulary whose logits are computed together for log-probabilities
VOCAB_CHUNK = 4096
Rotations = Sequence[Rotation | None]
"""One a layer; None where queries and keys are not rotated."""
Attend = Callable[[int, Tensor], Tensor]
"""Self-attention: (layer, normed states) -> the heads' outputs side by side (token, width)."""
CrossAttend = Callable[[int, Tensor], Tensor | None]
"""An addition between a layer's attention and its MLP: (layer, states) -> states or None."""
PartAttention = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values (token, head, dim)) -> the heads' outputs side by side (token,
width).
"""


@dataclass(frozen=True)
class Decoder:
    """A decoder-only transformer: token ids and real positions in, hidden states out, keys and
    values into a cache.
    """

    shape: Shape
    weights: Weights

    @cached_property
    def slopes(self) -> Tensor | None:
        """ALiBi's slope of each head (head,); None for rotary positions."""
        if self.shape.position != "alibi":
            return None
        return torch.tensor(self.shape.alibi_slopes, device=self.weights.embedding.device)

    def read(self, x: Tensor, parts: Sequence[Part], layers: Layers = None) -> Tensor:
        """States (token, d_model) of packed tokens after all layers or a range of them, not normed;
        their keys and values of these layers join the caches.

        All linear layers and norms are computed once for all parts, whose tokens lie one after
        another; each part attends by itself. A part whose cache has a `cross_attention` is read
        alone.
        """
        for part in parts:
            part.layout.put(part.positions, part.cache.positions, 0)
            for by_head in part.cache.head_positions or ():
                part.layout.put(part.positions.expand(by_head.shape[0], -1), by_head, 1)
        if is_fusable(parts) and self.runs_fused(x.shape[0]) and not any(map(self._hides, parts)):
            angles = self.rotations(torch.cat([part.positions for part in parts]))[0]
            assert angles is not None
            assert self._fused is not None
            x = self._fused.read(x, angles, parts, layers)
        else:
            cross_attend = parts[0].cache.cross_attention
            if cross_attend is not None:
                cross_attend = partial(cross_attend, positions=parts[0].positions)
            x = self.run_layers(x, self._attention(parts), cross_attend, layers)
        for part in parts:
            part.cache.length = part.layout.start + part.tokens
        return x

    def runs_fused(self, tokens: int) -> bool:
        """Whether so many tokens pass all layers in one compiled call, if their caches are plain."""
        stored = self.weights.layers[0].qkv.weight.dtype
        on_cpu = self.weights.embedding.device.type == "cpu"
        return on_cpu and choice.runs_fused(stored, tokens) and self._fused is not None

    @cached_property
    def _fused(self) -> FusedLayers | None:
        return fuse(self.weights.layers, self.shape)

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (token,) -> the states (token, d_model) that the first layer reads."""
        x = F.embedding(ids, self.weights.embedding)
        x = x if self.shape.embedding_scale == 1.0 else x * self._embedding_scale
        return self.weights.embedding_norm(x)

    @cached_property
    def _embedding_scale(self) -> float:
        """The scale, rounded to the decoder's type as in training."""
        return float(torch.tensor(self.shape.embedding_scale, dtype=self.weights.embedding.dtype))

    def run_layers(
        self,
        x: Tensor,
        attend: Attend,
        cross_attend: CrossAttend | None = None,
        layers: Layers = None,
    ) -> Tensor:
        """States (token, d_model) through all layers, or those from the first to before the last,
        not normed.
        """
        first, last = layers or (0, self.shape.layers)
        for index, layer in enumerate(self.weights.layers[first:last], first):
            # as a call, it leaves no name to the states, whose memory the next layer takes
            x = x + layer.attention_post_norm(layer.out(attend(index, layer.attention_norm(x))))
            added = None if cross_attend is None else cross_attend(index, x)
            x = x if added is None else x + added
            outputs = [self._mlp(layer, piece) for piece in self._mlp_pieces(x, index)]
            x = x + (torch.cat(outputs) if len(outputs) > 1 else outputs[0])
        return x

    def _mlp_pieces(self, x: Tensor, layer: int) -> Sequence[Tensor]:
        """The tokens cut for a layer's MLP, so that its inner units stay within MLP_BYTES."""
        if operations.torch_only(x):
            return [x]
        size = x.shape[0] * x.element_size() * self.shape.ffn[layer] * (1 + self.shape.gated)
        return x.chunk(-(-size // MLP_BYTES))

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        """The output of a layer's MLP for states (token, d_model)."""
        inner = layer.up(layer.mlp_norm(x))
        activation = self.shape.activation
        active = (
            operations.gate(inner, activation)
            if self.shape.gated
            else operations.ACTIVATIONS[activation](inner)
        )
        return layer.mlp_post_norm(layer.down(active))

    def rotations(self, positions: Tensor) -> Rotations:
        """Each layer's rotation of tokens at positions (token,), in the decoder's type."""
        dtype = self.weights.embedding.dtype
        kinds = self._rotation_kinds
        angles: dict[bool | None, Rotation] = {}
        for kind in {*kinds} - {None}:
            cos, sin = rotation(positions, self.shape, kinds.index(kind), scaled=True)
            angles[kind] = (cos.to(dtype), sin.to(dtype))
        return [angles.get(kind) for kind in kinds]

    @cached_property
    def _rotation_kinds(self) -> list[bool | None]:
        """Whether each layer has the rotary base of layers with a window; None: not rotated."""
        shape = self.shape
        return [
            shape.is_local(layer) if shape.is_rotated(layer) else None
            for layer in range(shape.layers)
        ]

    def logits(self, hidden: Tensor) -> Tensor:
        """(token, d_model) -> (token, vocab)."""
        return self._capped(self.weights.head(hidden))

    def _capped(self, logits: Tensor) -> Tensor:
        cap = self.shape.logit_cap
        return logits if cap is None else (logits / cap).tanh() * cap

    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """States (token, d_model), a target of each (token,) -> the targets' log-probabilities
        (token,) in float32. On a CPU the vocabulary is read in chunks, so that logits are used
        before they leave the processor's cache.
        """
        parts = (
            self.weights.head.split_rows(VOCAB_CHUNK)
            if hidden.device.type == "cpu"
            else [self.weights.head]
        )
        if len(parts) == 1:
            return operations.log_probabilities(self.logits(hidden), targets)
        first = 0
        chosen = torch.zeros(targets.shape)
        total = torch.full(targets.shape, float("-inf"))
        for part in parts:
            logits = self._capped(part(hidden))
            at = targets - first
            inside = (at >= 0) & (at < logits.shape[1])
            at = at.where(inside, 0)
            value = logits.gather(1, at[:, None])[:, 0].float()
            chosen = value.where(inside, chosen)
            total = total.logaddexp(value - operations.log_probabilities(logits, at))
            first += logits.shape[1]
        return chosen - total

    def _attention(self, parts: Sequence[Part]) -> Attend:
        angles = self.rotations(torch.cat([part.positions for part in parts]))
        attentions = [self._part_attention(part) for part in parts]
        tokens = [part.tokens for part in parts]

        def attend(index: int, normed: Tensor) -> Tensor:
            qkv = self.split(index, self.weights.layers[index].qkv(normed), angles[index])
            if len(attentions) == 1:
                return attentions[0](index, *qkv)
            by_part = zip(*(values.split(tokens) for values in qkv), strict=True)
            return torch.cat(
                [
                    attention(index, q, k, v)
                    for attention, (q, k, v) in zip(attentions, by_part, strict=True)
                ]
            )

        return attend

    def _part_attention(self, part: Part) -> PartAttention:
        """The attention of one part: what its layers share is computed once, here."""
        cache = part.cache
        same_slots = cache.head_positions is None  # in all layers
        watches = [watch for watch in (part.observe, cache.watch) if watch is not None]
        views = self._views(part, bool(watches))
        plain = same_slots and not watches and cache.tempered is None

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            layout, bias = views[index]
            cached_k = cache.k[index]
            cached_v = cache.v[index]
            layout.put(k.transpose(0, 1), cached_k, 1)
            layout.put(v.transpose(0, 1), cached_v, 1)
            queries = layout.pad(q)
            attended = None
            if plain and bias is None and layout.key_slots is not None:
                attended = operations.attend_gathered(
                    queries, cached_k, cached_v, layout.key_slots, layout.mask
                )
            if attended is None:
                keys = layout.keys(cached_k)
                if not same_slots:
                    bias = self._bias(part.positions, cache, layout, index)
                for watch in watches:
                    watch(index, queries, keys, bias)
                values = layout.keys(cached_v)
                if cache.tempered is not None:
                    attended = tempered_attention(
                        queries, keys, values, bias, layout, cache.tempered
                    )
                elif bias is not None:
                    attended = biased_attention(queries, keys, values, bias)
                else:
                    attended = operations.attend(queries, keys, values, layout.mask, layout.causal)
            return layout.pack(attended)

        return attend

    def _views(self, part: Part, watched: bool) -> Sequence[tuple[Layout, Tensor | None]]:
        """Each layer's layout and, where all heads have the same slots, bias, for one part."""
        positions = part.positions
        cache = part.cache
        hides = self._hides(part)
        windows = [self.shape.window(i) if hides else None for i in range(self.shape.layers)]
        views: dict[int | None, tuple[Layout, Tensor | None]] = {}
        for window in set(windows):
            layout = part.layout
            if window is not None:
                layout = layout.within(window, positions, cache.positions, not watched)
            bias = None
            if cache.head_positions is None:
                bias = self._bias(positions, cache, layout, masked=watched and window is not None)
            elif hides:
                reason = "a cache with slots by head cannot be read through a sliding window"
                raise ValueError(reason)
            views[window] = (layout, bias)
        return [views[window] for window in windows]

    def _hides(self, part: Part) -> bool:
        """Whether a sliding window hides keys in a pass over a part; on a GPU, whether there is
        one.
        """
        window = self.shape.shortest_window
        if window is None or part.positions.device.type != "cpu":
            return window is not None
        first = part.layout.per_key(part.cache.positions).amin()
        return bool(part.positions.amax() - first >= window)

    def split(
        self, index: int, qkv: Tensor, angles: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Packed qkv (token, rows) -> queries, keys, values (token, head, dim), normed and rotated
        by family.
        """
        heads = self.shape.heads[index]
        kv = self.shape.kv_heads[index]
        if self.shape.qkv_clip is not None:
            qkv = qkv.clamp(-self.shape.qkv_clip, self.shape.qkv_clip)
        qkv = qkv.view(qkv.shape[0], heads + 2 * kv, self.shape.head_dim)
        qk = qkv[:, : heads + kv]
        v = qkv[:, heads + kv :]
        layer = self.weights.layers[index]
        if layer.q_norm is not None and layer.k_norm is not None:
            qk = torch.cat([layer.q_norm(qk[:, :heads]), layer.k_norm(qk[:, heads:])], 1)
        if angles is not None:
            qk = operations.rotate(qk, *angles)
        return qk[:, :heads], qk[:, heads:], v

    def _bias(
        self,
        positions: Tensor,
        cache: KVCache,
        layout: Layout,
        layer: int | None = None,
        masked: bool = False,
    ) -> Tensor | None:
        """The bias of this pass's scores, (row, head, query, key) in fp32, -inf where the mask
        hides a key. None where there is no bias besides the mask, unless that is `masked`: not the
        causal one, and to be observed. In a cache with slots by head the keys' positions and gaps
        are those of a `layer`.
        """
        ragged = layer is not None and cache.ragged
        added = (self.slopes, cache.bias, cache.head_bias, cache.tempered)
        if all(values is None for values in added) and not (ragged or masked):
            return None

        def by_query_head(values: Tensor) -> Tensor:
            """(kv_head, slot) -> (row, head, key)."""
            assert layer is not None
            by_head = layout.per_key(values)
            return by_head.repeat_interleave(self.shape.heads[layer] // by_head.shape[1], 1)

        bias = torch.zeros(1, 1, 1, 1, device=positions.device)
        if cache.bias is not None:
            bias = layout.per_key(cache.bias)[:, None, None, :].expand(-1, 1, layout.queries, -1)
        hidden = None
        at = layout.per_key(cache.positions)
        if layer is not None and cache.head_positions is not None:
            at = by_query_head(cache.head_positions[layer])
            # (row, head, 1, key): the head has fewer tokens than another
            hidden = at.isinf()[:, :, None, :]
            at = at.masked_fill(at.isinf(), 0)
            if cache.head_bias is not None:
                bias = bias + by_query_head(cache.head_bias[layer])[:, :, None]
        if self.slopes is not None:
            queries = layout.pad(positions[:, None, None])[:, 0, :, 0]
            bias = bias + alibi_bias(self.slopes, queries, at)
        mask = layout.mask
        if layout.causal:
            mask = torch.ones(
                layout.queries, layout.queries, dtype=torch.bool, device=bias.device
            ).tril()
        bias = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        if hidden is None:
            return bias
        return torch.where(hidden.expand(-1, -1, layout.queries, -1), float("-inf"), bias)


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention (row, head, query, dim) under a bias of scores (row, head, query, key). Query heads
    are grouped over key-value heads. In half precision the bias is added to fp32 scores: in bf16,
    ALiBi's bias alone is off by 2 at position 1,000.
    """
    if q.dtype == torch.float32:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, enable_gqa=bool(q.shape[1] != k.shape[1])
        )
    return _matmul_by_group(scores(q, k, bias).softmax(-1).to(v.dtype), v)


def tempered_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, layout: Layout, tempered: Tempered
) -> Tensor:
    """Attention in which some keys C have a temperature T and a scale S (Yang et al., ICLR 2025,
    section 4).

    Attention over C alone, of scores s / T, is merged with that over the other keys by the weights
    softmax of (S T lse_C, lse), lse_C = log sum exp(s_j / T) over C. In one softmax: the scores of
    C are s / T + (S T - 1) lse_C.
    """
    raw = scores(q, k, bias)
    chosen = layout.per_key(tempered.keys)[:, None, None, :]
    cooled = raw / tempered.temperature
    total = cooled.masked_fill(~chosen, float("-inf")).logsumexp(-1, keepdim=True)
    total = total.masked_fill(total.isinf(), 0.0)  # of a query that sees none of them
    added = (tempered.scale * tempered.temperature - 1) * total
    return _matmul_by_group(torch.where(chosen, cooled + added, raw).softmax(-1).to(v.dtype), v)


def scores(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Attention scores (row, head, query, key) in fp32, before the softmax."""
    # keys first: in bf16 on AVX-512, oneDNN is slower at few rows times a transposed matrix
    if q.shape[2] == 1:
        by_kv_head = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        raw = (k @ by_kv_head.transpose(-1, -2)).transpose(-1, -2).reshape(*q.shape[:3], -1)
    else:
        raw = _matmul_by_group(q, k.transpose(-1, -2))
    raw = raw.float() * q.shape[-1] ** -0.5
    return raw if bias is None else raw + bias


def _matmul_by_group(x: Tensor, y: Tensor) -> Tensor:
    """Product of x (row, head, m, n) and y (row, kv_head, n, p), each KV head read once by its
    group of heads.
    """
    rows, heads, count, _ = x.shape
    grouped = x.reshape(rows, y.shape[1], heads // y.shape[1] * count, x.shape[3])
    return (grouped @ y).view(rows, heads, count, y.shape[3])
