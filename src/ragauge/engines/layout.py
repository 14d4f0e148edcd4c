"""The geometry of one forward pass: which new tokens form which row, and which slots each row
attends to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from ragauge.engines.cache import KVCache, Watch
from ragauge.engines.spans import Row, Span, merge

MAX_EXPLICIT_TOKENS = 16  # new tokens for which a layout lists the slots that each attends to
Run = tuple[int, int, int]
"""Where a new token's key goes, and the first and the number of the slots that it attends to."""


@dataclass(frozen=True)
class Layout:
    """How packed new tokens (all rows one after another) become padded queries, keys and a mask.

    A single row whose past is everything before it needs no gather: its keys are a view of the
    cache.
    """

    start: int  # first slot of the new tokens
    lengths: tuple[int, ...]  # new tokens of each row
    past: tuple[int, ...]  # cached tokens each row attends to
    key_slots: Tensor | None = None  # (row, key): slots of past and new tokens, padded with slot 0
    # (new token,): each packed token's place in the padded grid; None: dense
    query_slots: Tensor | None = None
    # (row, 1, query, key) bool, True where attended; None: all, or causal without a past
    mask: Tensor | None = None
    slots: Tensor | None = None  # (new token,): where the new tokens go; None: from `start` on
    # slots between the first keys of neighbouring rows, which are a view of the cache
    row_stride: int | None = None
    # of few tokens that each attend to a run of slots; None: others
    runs: tuple[Run, ...] | None = None
    # slot of the first key, where keys are a view of the cache up to the last new token
    first: int = 0

    @property
    def contiguous(self) -> bool:
        """Whether the keys are all slots up to the last new token: a view of the cache."""
        return self.key_slots is None and self.row_stride is None

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def queries(self) -> int:
        return max(self.lengths)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def causal(self) -> bool:
        """True if the whole mask is the square lower triangle."""
        return self.mask is None and self.queries > 1

    def put(self, values: Tensor, into: Tensor, dim: int) -> None:
        """Write values of the new tokens into the cache, whose slots are its dimension `dim`."""
        if self.slots is None:
            into.narrow(dim, self.start, self.tokens).copy_(values)
        else:
            into.index_copy_(dim, self.slots, values)

    def pad(self, packed: Tensor) -> Tensor:
        """(token, head, dim) -> (row, head, query, dim)."""
        if self.query_slots is not None:
            padded = packed.new_zeros(self.rows * self.queries, *packed.shape[1:])
            padded[self.query_slots] = packed
            packed = padded
        return packed.view(self.rows, self.queries, *packed.shape[1:]).transpose(1, 2)

    def pack(self, padded: Tensor) -> Tensor:
        """(row, head, query, dim) -> (token, head * dim)."""
        flat = padded.transpose(1, 2).reshape(self.rows * self.queries, -1)
        return flat if self.query_slots is None else flat[self.query_slots]

    def keys(self, cached: Tensor) -> Tensor:
        """(kv_head, slot, dim) -> (row, kv_head, key, dim)."""
        if self.contiguous:
            return cached[:, self.first : self.start + self.tokens].unsqueeze(0)
        heads, _, dim = cached.shape
        if self.row_stride is not None:
            by_row = cached.view(heads, -1, self.row_stride, dim)
            return by_row[:, : self.rows, : max(self.past) + 1].transpose(0, 1)
        assert self.key_slots is not None
        rows, keys = self.key_slots.shape
        return (
            cached.index_select(1, self.key_slots.flatten())
            .view(heads, rows, keys, dim)
            .transpose(0, 1)
        )

    def per_key(self, values: Tensor) -> Tensor:
        """One value a slot -> one a key: (..., slot) -> (row, ..., key)."""
        if self.contiguous:
            return values[..., self.first : self.start + self.tokens].unsqueeze(0)
        if self.row_stride is not None:
            by_row = values.view(*values.shape[:-1], -1, self.row_stride)
            return by_row[..., : self.rows, : max(self.past) + 1].movedim(-2, 0)
        return values[..., self.key_slots].movedim(-2, 0)

    def within(self, window: int, positions: Tensor, cached: Tensor, trim: bool) -> "Layout":
        """The layout in which new tokens at positions (token,) attend to keys less than `window`
        before them alone. `cached` has the positions of all slots (slot,), the new tokens'
        included; `trim` leaves out those before the first that any token attends to, where keys are
        a view of the cache.
        """
        queries = self.pad(positions[:, None, None])[:, 0, :, 0]
        mask = (queries[:, :, None] - self.per_key(cached)[:, None, :] < window)[:, None]
        if self.causal:
            mask = mask.tril()
        elif self.mask is not None:
            mask = mask & self.mask
        # a GPU's host does not wait for the mask
        trim = trim and self.contiguous and mask.device.type == "cpu"
        first = int(mask.any(2).flatten().int().argmax()) if trim else 0
        return replace(self, mask=mask[..., first:], first=first)


@dataclass(frozen=True)
class Part:
    """The packed new tokens of one pass that share a cache."""

    positions: Tensor  # (token,), fp32
    cache: KVCache
    layout: Layout
    observe: Watch | None = None

    @property
    def tokens(self) -> int:
        return self.layout.tokens


def lay_out(rows: Sequence[Row], cache: KVCache) -> Layout:
    """The layout of rows whose new tokens are appended to the cache in order."""
    start = cache.length
    device = cache.positions.device
    lengths = tuple(len(r.ids) for r in rows)
    past = tuple(r.past_length for r in rows)
    if len(rows) == 1 and merge(rows[0].past) in ((), (Span(0, start),)) and past[0] == start:
        [new] = lengths
        mask = _mask(lengths, past, device) if start and new > 1 else None
        runs = None
        if new <= MAX_EXPLICIT_TOKENS:
            runs = tuple((slot, 0, slot + 1) for slot in range(start, start + new))
        return Layout(start, lengths, past, mask=mask, runs=runs)
    firsts = accumulate(lengths, initial=start)
    own = [Span(first, first + new) for first, new in zip(firsts, lengths, strict=False)]
    slots = [cache.slots((*row.past, span)) for row, span in zip(rows, own, strict=True)]
    key_slots = torch.nn.utils.rnn.pad_sequence(slots, batch_first=True)
    query_slots = None
    if len(set(lengths)) > 1:
        query_slots = torch.cat(
            [torch.arange(n, device=device) + i * max(lengths) for i, n in enumerate(lengths)]
        )
    return Layout(start, lengths, past, key_slots, query_slots, _mask(lengths, past, device))


def lay_out_tree(rows: Sequence[Row], cache: KVCache) -> Layout:
    """The same rows packed as one sequence whose keys are a view of the cache: nothing is gathered
    or padded. The mask, (1, 1, token, key) over all slots, has for every row its past's slots and
    its own new tokens, causally (tree attention). Worth it where rows share most of their past,
    such as one long document.
    """
    start = cache.length
    tokens = sum(len(r.ids) for r in rows)
    mask = torch.zeros(tokens, start + tokens, dtype=torch.bool, device=cache.positions.device)
    first = 0
    for row in rows:
        stop = first + len(row.ids)
        for span in row.past:
            mask[first:stop, span.start : span.stop] = True
        mask[first:stop, start + first : start + stop].fill_(True).tril_()
        first = stop
    return Layout(start, (tokens,), (start,), mask=mask[None, None])


def lay_out_in_place(row: Row, cache: KVCache) -> Layout:
    """One row whose tokens go to slots of their own, over the tokens there or to the next free
    slots. The mask, (1, 1, token, key) over all slots, has those of the row's past and of the row
    itself whose position is not beyond the token's: recomputed tokens have gaps between them, so a
    triangular mask would be wrong.
    """
    assert row.slots is not None
    device = cache.positions.device
    length = cache.length
    recomputed = set(row.recomputed)
    free = [slot for slot in row.slots if slot not in recomputed]
    if free != list(range(length, length + len(free))) or len(set(row.slots)) < len(row.slots):
        raise ValueError(
            f"slots {free}: neither of the row's past nor the next free ones from {length} on"
        )
    length += len(free)
    slots = torch.tensor(list(row.slots), device=device)
    seen = torch.zeros(length, dtype=torch.bool, device=device)
    for span in row.past:
        seen[span.start : span.stop] = True
    seen[slots] = True
    own = torch.tensor(list(row.positions), dtype=torch.float32, device=device)
    at = cache.positions[:length].clone()
    at[slots] = own
    mask = seen & (at <= own[:, None])
    tokens = len(row.ids)
    return Layout(
        length - tokens, (tokens,), (length - tokens,), mask=mask[None, None], slots=slots
    )


def lay_out_steps(pasts: Sequence[int | None], stride: int, device: torch.device) -> Layout:
    """One new token after each past, given in tokens; pasts begin every `stride` slots. None: an
    unused row.
    """
    used = [(row, past) for row, past in enumerate(pasts) if past is not None]
    lengths = torch.tensor([past or 0 for past in pasts], device=device)
    keys = torch.arange(max(past for _, past in used) + 1, device=device)
    mask = (keys <= lengths[:, None])[:, None, None]
    runs = tuple((row * stride + past, row * stride, past + 1) for row, past in used)
    return Layout(
        start=0,
        lengths=tuple(int(past is not None) for past in pasts),
        past=tuple(past or 0 for past in pasts),
        query_slots=None
        if len(used) == len(pasts)
        else torch.tensor([row for row, _ in used], device=device),
        mask=mask if len(set(pasts)) > 1 else None,
        slots=torch.tensor([slot for slot, _, _ in runs], device=device),
        row_stride=stride,
        runs=runs,
    )


def _mask(lengths: Sequence[int], past: Sequence[int], device: torch.device) -> Tensor:
    """(row, 1, query, key): query j of a row sees its past and its own tokens up to j. Padding
    queries see one key, so that no softmax is empty.
    """
    new, before = (torch.tensor(counts, device=device)[:, None, None] for counts in (lengths, past))
    query = torch.arange(max(lengths), device=device)[:, None]
    key = torch.arange(max(map(sum, zip(lengths, past, strict=True))), device=device)
    return torch.where(query < new, key <= before + query, key == 0)[:, None]
