"""Documents and their requests as tensors: a document is read once for all requests about it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ragauge.evidence.sft import Encoded


@dataclass(frozen=True)
class TrainingBatch:
    """One forward pass over a document and requests about it."""

    ids: Tensor  # (1, token): the document, then each request with its response but for the last token
    positions: Tensor  # (1, token); each request continues from the document's end
    mask: Tensor | None  # (1, 1, token, token), added to attention scores; None is causal
    places: Tensor  # (label,): the tokens from which the labels are predicted
    labels: Tensor  # (label,): the responses; source tokens are not in it, which masks them

    def to(self, device: torch.device) -> TrainingBatch:
        """The batch on another device."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: t.to(device) for name, t in tensors.items() if t is not None})


def pack(encoded: Encoded, dtype: torch.dtype = torch.float32) -> TrainingBatch:
    """A document with all its requests in parallel: each attends to the document and to itself alone.

    The loss of the batch is therefore the mean over the labels of passes of their own, for a single pass over the
    document. A single request needs no mask, so its memory does not grow with the square of the length.
    """
    ids, positions = list(encoded.document), list(range(len(encoded.document)))
    places: list[int] = []
    labels: list[int] = []
    owner = [0] * len(ids)
    for number, (request, response) in enumerate(encoded.requests, start=1):
        first = len(ids) + len(request) - 1
        places += range(first, first + len(response))
        labels += response
        added = [*request, *response[:-1]]
        ids += added
        positions += range(len(encoded.document), len(encoded.document) + len(added))
        owner += [number] * len(added)
    mask = _mask(torch.tensor(owner), dtype) if len(encoded.requests) > 1 else None
    return TrainingBatch(
        torch.tensor([ids]), torch.tensor([positions]), mask, torch.tensor(places), torch.tensor(labels)
    )


def apart(encoded: Encoded) -> list[Encoded]:
    """A document and one request per piece, for decoders that cannot be given positions (ALiBi)."""
    return [Encoded(encoded.document, (request,)) for request in encoded.requests]


def _mask(owner: Tensor, dtype: torch.dtype) -> Tensor:
    """(1, 1, query, key): 0 if the key is an earlier token of the document or of the query's own request."""
    causal = torch.ones(len(owner), len(owner), dtype=torch.bool).tril()
    seen = causal & ((owner[None, :] == 0) | (owner[None, :] == owner[:, None]))
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[None, None]


class ResponseLoss(nn.Module):
    """A decoder of transformers as the mean cross-entropy of a batch's responses.

    Logits are computed where a label is, which saves a fifth of a small decoder's work.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder
        self.picks = "logits_to_keep" in inspect.signature(decoder.forward).parameters

    def forward(self, batch: TrainingBatch) -> Tensor:
        picked = {"logits_to_keep": batch.places} if self.picks else {}
        read = self.decoder(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.mask, use_cache=False, **picked
        )
        logits = read.logits[0] if self.picks else read.logits[0, batch.places]
        return F.cross_entropy(logits.float(), batch.labels)
