"""Recall of the gold sections: whether the evidence was found in the right places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def score(record: Mapping[str, Any]) -> float | None:
    """The share of the gold stretches that a piece of evidence overlaps, by a character or more, in [0, 1].

    Reads `evidence` and `gold_stretches`; a data set that names a section has one stretch, the section's text. Text
    that stands in no document overlaps nothing. Its reference point is the share that evidence of the same volume
    finds by chance, which grows with the sections. None if the method looks for no evidence or the data set names
    no stretch.
    """
    gold = record.get("gold_stretches")
    if record["evidence"] is None or not gold:
        return None
    placed = [piece for piece in record["evidence"] if piece["document"] is not None]
    return sum(any(_overlap(stretch, piece) for piece in placed) for stretch in gold) / len(gold)


def _overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["document"] == b["document"] and a["start"] < b["stop"] and b["start"] < a["stop"])
