"""The weights of a converted GGUF file: dequantized tensor by tensor, or once to float32
safetensors.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.assets.shards import ShardWriter
from ragauge.assets.store import MANIFEST, Facts, Store, has_manifest
from ragauge.io import progress

if TYPE_CHECKING:
    from torch import Tensor

FILE = "model.gguf"  # in the folder of a converted model: a link
LATER = "model-{}.gguf"  # links to the further files of a model in several
ROPE_DIVISORS = "rope_freqs.weight"  # what each rotary frequency is divided by
# that are dequantized together: the `gguf` package takes twice the memory of what it returns
ROWS = 4096
PARTS = {
    "token_embd": "model.embed_tokens",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "output_norm": "model.norm",
    "output": "lm_head",
}
GEMMA3 = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
}


def is_converted(folder: Path) -> bool:
    return has_manifest(folder) and (folder / FILE).exists()


def open_file(path: Path) -> Any:
    """Open a GGUF file.

    Raises:
        ValueError: it is cut short.
    """
    state = path.stat()
    return _opened(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2)  # reading its keys takes seconds, for hundreds of thousands of tokens
def _opened(path: Path, *_state: int) -> Any:
    import numpy as np
    from gguf import GGUFReader

    class BoundedReader(GGUFReader):
        """Refuses lengths beyond the end of the file, which the library would read without end."""

        data: Any

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            # whose slices take a fraction of the time of those of a memmap
            self.data = np.asarray(self.data)
            kind = in_order(dtype, override_order or self.byte_order)
            stop = int(offset) + kind.itemsize * int(count)
            if stop > len(self.data):
                raise ValueError(
                    f"a value ends beyond byte {len(self.data):,}, the end of the file"
                )
            return self.data[int(offset) : stop].view(kind)

    @cache  # the library makes a new type for each of a million values
    def in_order(dtype: Any, byte_order: str) -> np.dtype[Any]:
        return np.dtype(dtype).newbyteorder(byte_order)

    return BoundedReader(path)


def tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a converted model's files, the first at `path`, by their names."""
    later = sorted(path.parent.glob(LATER.format("*")))
    return {tensor.name: tensor for file in (path, *later) for tensor in open_file(file).tensors}


def readers(path: Path, sizes_only: bool = False) -> "dict[str, Callable[[], Tensor]]":
    """Return a function for each tensor, by its name in the hub's checkpoints, that returns its
    float32 values.

    Args:
        path: Of the file.
        sizes_only: Tensors on the meta device.

    Raises:
        ValueError: A tensor that no decoder of this architecture has.
    """
    return {
        name: partial(_read, tensor, heads, less, sizes_only)
        for name, tensor, heads, less in _named(path)
    }


def block_rows(path: Path) -> "dict[str, Callable[[], tuple[Any, Any]]]":
    """Return a function for each matrix, by its name in the hub's checkpoints, that returns its
    blocks as they stand in the file, uint8 (row, byte), and their type.
    """
    return {
        name: partial(_rows, tensor, heads)
        for name, tensor, heads, _ in _named(path)
        if len(tensor.shape) == 2
    }


def _named(path: Path) -> Iterator[tuple[str, Any, int | None, int]]:
    """Yield each tensor with its name, the heads by which its rows are ordered, and what is added
    to its numbers.
    """
    keys = open_file(path).fields
    kind = keys["general.architecture"].contents()
    q, kv = (keys.get(f"{kind}.attention.{name}") for name in ("head_count", "head_count_kv"))
    heads = {"attn_q": q.contents(), "attn_k": (kv or q).contents()} if kind == "llama" else {}
    parts = PARTS | (GEMMA3 if kind == "gemma3" else {})
    for stored_name, tensor in tensors(path).items():
        *layer, part, suffix = stored_name.split(".")
        if stored_name == ROPE_DIVISORS:
            continue
        if part not in parts:
            raise ValueError(f"tensor {stored_name!r} is not of a plain {kind} decoder")
        less = 1 if kind == "gemma3" and part.endswith("norm") else 0
        name = f"model.layers.{layer[1]}.{parts[part]}" if layer else parts[part]
        yield f"{name}.{suffix}", tensor, heads.get(part), less


def _rows(tensor: Any, heads: int | None) -> tuple[Any, Any]:
    return _by_halves(tensor.data, heads), tensor.tensor_type


def _by_halves(rows: Any, heads: int | None) -> Any:
    """Order a head's rows as transformers rotates them: by halves, not in pairs."""
    if heads is None:
        return rows
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _read(tensor: Any, heads: int | None, less: int, sizes_only: bool) -> "Tensor":
    """Return the values as transformers has them: rows that Llama rotates by halves, norms of Gemma
    3 less one.
    """
    import numpy as np
    import torch
    from gguf import dequantize

    size = tuple(map(int, reversed(tensor.shape)))
    if sizes_only:
        return torch.empty(size, device="meta")
    values = np.empty(size, np.float32)
    for start in range(0, size[0], ROWS):
        rows = slice(start, start + ROWS)
        values[rows] = dequantize(tensor.data[rows], tensor.tensor_type)
    values = _by_halves(values, heads)
    return torch.from_numpy(values - less if less else values)


def float_checkpoint(folder: Path) -> Path:
    """Return a model's folder or, of a converted GGUF file, one with float32 safetensors instead;
    made once. float32, since bfloat16 would round most values of a 4-bit block (a 16-bit scale
    times a level, plus a minimum).
    """
    if not is_converted(folder):
        return folder

    def make(target: Path) -> Facts:
        progress.line(f"dequantizing {folder.name} to float32")
        for file in folder.iterdir():
            if file.suffix != ".gguf" and file.name != MANIFEST:
                shutil.copy(file, target)
        writer = ShardWriter(target)
        for name, read in readers(folder / FILE).items():
            writer.add(name, read())
        writer.close()
        return {"source": folder.name}

    return Store(folder.parent).build(folder.with_name(f"{folder.name}-float32"), make)
