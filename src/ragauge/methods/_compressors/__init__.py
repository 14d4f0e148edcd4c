"""Compressors of keys and values: one file each, a score for every token of every key-value head."""

from ragauge.methods._compressors._base import Budget, Compressor, Context, Window
from ragauge.methods._compressors.expected_attention import ExpectedAttention
from ragauge.methods._compressors.finch import Finch
from ragauge.methods._compressors.keydiff import KeyDiff
from ragauge.methods._compressors.knorm import Knorm
from ragauge.methods._compressors.kvzip import KVzip
from ragauge.methods._compressors.snapkv import SnapKV

COMPRESSORS: dict[str, type[Compressor]] = {
    "snapkv": SnapKV,
    "finch": Finch,
    "kvzip": KVzip,
    "expected_attention": ExpectedAttention,
    "knorm": Knorm,
    "keydiff": KeyDiff,
}

__all__ = ["COMPRESSORS", "Budget", "Compressor", "Context", "Window"]
