"""The data types that a decoder computes in and stores, and the devices that it runs on."""

from dataclasses import dataclass
from typing import Literal, get_args

from ragauge.errors import unknown

Dtype = Literal["float32", "bfloat16", "float16"]
AnyDtype = Literal[Dtype, "auto"]  # auto: the fastest one of the machine
Device = Literal["cpu", "cuda"]
# of matrices; full: in the number type; int4: the blocks of a GGUF file
Weights = Literal["full", "int8", "int4"]
# of keys and values; int8_stored and int4_stored: those of stored documents alone
CacheType = Literal["full", "int8_stored", "int4_stored"]
STORED_BITS = {"int8_stored": 8, "int4_stored": 4}
Kernels = Literal["measured", "default"]  # of a CPU; default: torch's own
AUTO: Literal["auto"] = "auto"
DTYPES: tuple[str, ...] = get_args(Dtype)
DEVICES: tuple[str, ...] = get_args(Device)
# what ONNX Runtime has kernels for, by device
ONNX_DTYPES = {"cpu": ("float32",), "cuda": ("float32", "float16")}
WEIGHTS: tuple[str, ...] = get_args(Weights)
CACHE_TYPES: tuple[str, ...] = get_args(CacheType)


def device_here(device: str) -> str:
    """Resolve `auto` to `cuda` where torch can use a GPU, else to `cpu`.

    Raises:
        UserError: unknown device.
    """
    if device not in (AUTO, *DEVICES):
        raise unknown("device", device, (AUTO, *DEVICES))
    if device != AUTO:
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Precision:
    """How a decoder's numbers are computed and stored."""

    dtype: str = "float32"  # of activations and of everything that is not quantized
    weights: str = "full"  # one of WEIGHTS
    kv: str = "full"  # of keys and values, one of CACHE_TYPES

    def __str__(self) -> str:
        """As results show it: bfloat16; or float32, weights int8, keys and values int8_stored."""
        weights = "" if self.weights == "full" else f", weights {self.weights}"
        return self.dtype + weights + ("" if self.kv == "full" else f", keys and values {self.kv}")


def precision(dtype: object) -> Precision:
    """The precision itself, or one in which everything has this torch dtype, given as such or by
    name.
    """
    return dtype if isinstance(dtype, Precision) else Precision(str(dtype).removeprefix("torch."))
