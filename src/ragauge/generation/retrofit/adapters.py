"""What training adds to joint attention: low-rank changes to how neighbours are read; the decoder stays as it is.

The projections to queries, keys and values that read a neighbour get a low-rank term (LoRA; Hu et al., 2022) and an
offset. Own tokens are read by the decoder's own weights, so that without neighbours nothing changes at all; the terms
decide alone how neighbours present themselves: an offset of keys weighs them against own tokens, head by head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ragauge.engines import LM
from ragauge.engines.decoder import Decoder
from ragauge.engines.weights import Linear, Weights
from ragauge.errors import UserError
from ragauge.generation.retrofit.trained import TrainedWeights, load_into, read_trained

RANK = 8


class Adapters(TrainedWeights):
    """One low-rank term and one offset per layer; all zero at first, so that nothing changes."""

    form: ClassVar[str] = "joint"

    def __init__(self, weights: Weights, rank: int = RANK, seed: int = 0) -> None:
        super().__init__()
        if rank < 1:
            raise UserError(f"rank: must be at least 1, not {rank}")
        self.rank = rank
        draw = torch.Generator().manual_seed(seed)
        self.down, self.up, self.offset = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for layer in weights.layers:
            rows, width = layer.qkv.weight.shape
            self.down.append(torch.randn(rank, width, generator=draw) * width**-0.5)
            self.up.append(torch.zeros(rows, rank))
            self.offset.append(torch.zeros(rows))
        self.to(weights.embedding.device)

    def added(self, index: int, x: Tensor) -> Tensor:
        """What is added to a layer's projections of neighbours' states (token, width) -> (token, rows)."""
        low = (x.float() @ self.down[index].t()) @ self.up[index].t() + self.offset[index]
        return low.to(x.dtype)

    def groups(self) -> list[dict[str, Any]]:
        """See `TrainedWeights.groups`."""
        return [{"params": list(self.parameters()), "share": 1.0}]

    def sizes(self) -> dict[str, str]:
        """See `TrainedWeights.sizes`."""
        return {"rank": str(self.rank)}

    @torch.no_grad()
    def merged(self, lm: LM) -> LM:
        """A decoder that reads neighbours so, of the same shape; it shares all other weights with `lm`."""
        weights = lm.decoder.weights
        layers = tuple(replace(layer, qkv=self._merged(index, layer.qkv)) for index, layer in enumerate(weights.layers))
        return LM(Decoder(lm.shape, replace(weights, layers=layers)), lm.tokenizer)

    def _merged(self, index: int, frozen: Linear) -> Linear:
        change = self.up[index] @ self.down[index]
        offset = self.offset[index] if frozen.bias is None else self.offset[index] + frozen.bias
        return Linear((frozen.weight + change).to(frozen.weight.dtype), offset.to(frozen.weight.dtype))

    @classmethod
    def load(cls, path: Path, lm: LM, model_sha256: str | None = None) -> Adapters:
        """The adapters of a file.

        Raises:
            UserError: the file is missing or damaged, or belongs to another form, model or size of decoder.
        """
        about, tensors = read_trained(path, cls.form, model_sha256)
        rank = about.get("rank", "")
        if not rank.isdecimal():
            raise UserError(f"{path}: not adapters: the metadata has no rank")
        return load_into(cls(lm.decoder.weights, int(rank)), tensors, path)
