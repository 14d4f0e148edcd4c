"""Recall of the gold sections: whether the evidence is from the right places."""

from ragauge.metrics.base import RecordFields


def score(record: RecordFields) -> float | None:
    """The share of the gold stretches that a piece of evidence overlaps, by a character or more, in
    [0, 1].

    Reads `evidence` and `gold_stretches`; a data set that names a section has one stretch, the
    section's text. Text that stands in no document overlaps nothing. Its reference point is the
    share that evidence of the same volume finds by chance, which grows with the sections. None if
    the method looks for no evidence or the data set names no stretch.
    """
    gold = record.get("gold_stretches")
    if record["evidence"] is None or not gold:
        return None
    pieces = [
        (p["document"], p["start"], p["stop"])
        for p in record["evidence"]
        if p["document"] is not None
    ]
    hits = (
        any(d == s["document"] and a < s["stop"] and s["start"] < b for d, a, b in pieces)
        for s in gold
    )
    return sum(hits) / len(gold)
