"""Faithfulness as CFIC's Table 7 has it, computed exactly: whether evidence stands in its document."""

from ragauge.metrics.base import RecordFields


def score(record: RecordFields) -> float | None:
    """The share of the pieces of evidence that are substrings of a document, character by
    character, in [0, 1]. Reads `evidence`, whose `verbatim` was found when the document was at
    hand. None if the method looks for no evidence, found none, or where no piece was compared.
    """
    compared = [
        piece["verbatim"] for piece in record["evidence"] or () if piece["verbatim"] is not None
    ]
    return sum(compared) / len(compared) if compared else None
