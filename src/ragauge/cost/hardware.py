"""The number types and devices that a decoder runs with. Every choice of them, and every table by them, uses these."""

from __future__ import annotations

from typing import Literal, get_args

Dtype = Literal["float32", "bfloat16", "float16"]
AnyDtype = Literal[Dtype, "auto"]  # auto: the fastest one of the machine
Device = Literal["cpu", "cuda"]
Weights = Literal["full", "int8", "int8_weight_only"]  # of matrices; full: in the number type
CacheType = Literal["full", "int8"]  # of cached keys and values
AUTO: Literal["auto"] = "auto"
DTYPES: tuple[str, ...] = get_args(Dtype)
DEVICES: tuple[str, ...] = get_args(Device)
WEIGHTS: tuple[str, ...] = get_args(Weights)
CACHE_TYPES: tuple[str, ...] = get_args(CacheType)
