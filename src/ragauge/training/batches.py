"""A document and its requests as one pass: the document is read once for all requests about it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.evidence.sft import Encoded

Batch = dict[str, Tensor]
"""What a decoder of transformers takes, and the labels of the tokens that `logits_to_keep` names: (label,)."""


def pack(encoded: Encoded) -> Batch:
    """A document followed by all its requests: each attends to the document and to itself alone.

    Each request and its response, but for the response's last token, continues from the document's end. The loss is
    therefore the mean over the labels of separate passes, for a single pass over the document. A single request needs
    no mask, so its memory does not grow with the square of the length.
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
    batch = {"input_ids": torch.tensor([ids]), "position_ids": torch.tensor([positions])}
    if len(encoded.requests) > 1:
        batch["attention_mask"] = _mask(torch.tensor(owner))
    return batch | {"logits_to_keep": torch.tensor(places), "labels": torch.tensor(labels)}


def separate(encoded: Encoded) -> list[Encoded]:
    """A document with one request each, for decoders that cannot be given positions (ALiBi)."""
    return [Encoded(encoded.document, (request,)) for request in encoded.requests]


def response_loss(decoder: Any, batch: Batch) -> Tensor:
    """The mean cross-entropy of a batch's responses by a decoder of transformers, in nats per token.

    Logits are computed where a label is, which saves a fifth of a small decoder's work.
    """
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = decoder(**inputs, use_cache=False).logits[0]
    return F.cross_entropy(logits.float(), batch["labels"])


def _mask(owner: Tensor) -> Tensor:
    """(1, 1, query, key): whether the key is an earlier token of the document or of the query's own request."""
    causal = torch.ones(len(owner), len(owner), dtype=torch.bool).tril()
    seen = causal & ((owner[None, :] == 0) | (owner[None, :] == owner[:, None]))
    return seen[None, None]
