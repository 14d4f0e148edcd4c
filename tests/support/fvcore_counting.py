"""Multiply-accumulates of a trace by fvcore, the papers' counter: each of its calls, run on the
decoder.

The decoder has the model's full shape on the meta device, so nothing is multiplied and no weights
are needed. fvcore lacks attention in one operator, which gets a handle; norms, which are no matrix
products, get one that counts nothing.
"""

from collections import Counter

import torch
from fvcore.nn import FlopCountAnalysis

from ragauge.engines.cache import KVCache
from ragauge.engines.checkpoint import random_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.layout import Part, lay_out
from ragauge.engines.protocol import Row, Span

META = torch.device("meta")
Pass = tuple[int, int, int, tuple[int, int] | None]
"""New tokens of a row, cached tokens before them, positions whose logits are computed, layers."""


def fvcore_macs(trace, shape):
    """Multiply-accumulates of the calls of a trace, an encoder's (`Call.macs`) added as they are.
    Rows are counted one by one, without padding; rows alike are run once. Not for shapes with
    sliding windows, whose hidden keys fvcore counts.
    """
    calls = list(trace)
    decoder = Decoder(shape, random_weights(shape, torch.float32, META))
    passes = Counter[Pass]()
    for call in (call for call in calls if call.macs is None):
        rows = list(
            zip(call.lengths, call.past, call.logits or (0,) * len(call.lengths), strict=True)
        )
        passes.update(
            (n, past + step * n, keep, call.layers)
            for step in range(call.steps)
            for n, past, keep in rows
        )
    counted = sum(count * _counted(decoder, pass_) for pass_, count in passes.items())
    return counted + sum(call.macs or 0 for call in calls)


class _Step(torch.nn.Module):
    """A row through the decoder, as a module that fvcore traces."""

    def __init__(self, decoder, pass_):
        super().__init__()
        self.decoder = decoder
        self.pass_ = pass_

    @torch.no_grad()
    def forward(self, ids):
        """Token ids (token,) -> logits of the last positions, else the states."""
        new, past, keep, layers = self.pass_
        decoder = self.decoder
        cache = KVCache(decoder.shape, past + new, torch.float32, META)
        cache.length = past
        row = Row([0] * new, range(past, past + new), (Span(0, past),))
        part = Part(torch.empty(new, device=META), cache, lay_out([row], cache))
        states = decoder.read(decoder.embed(ids), [part], layers)
        return decoder.logits(decoder.weights.norm(states[-keep:])) if keep else states


def _counted(decoder, pass_):
    if not pass_[0]:
        return 0
    analysis = FlopCountAnalysis(
        _Step(decoder, pass_), torch.zeros(pass_[0], dtype=torch.long, device=META)
    )
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings(
        "none"
    )
    norms = {f"aten::{name}_norm": lambda *_: Counter() for name in ("layer", "rms")}
    for operator, handle in {**norms, "aten::scaled_dot_product_attention": _attention}.items():
        analysis.set_op_handle(operator, handle)
    return int(analysis.total())


def _attention(inputs, outputs):
    """fvcore handle: the products query·key and probability·value."""
    (rows, heads, queries, dim), (_, _, keys, _), (*_, width) = (
        value.type().sizes() for value in inputs[:3]
    )
    return Counter({"attention": rows * heads * queries * keys * (dim + width)})
