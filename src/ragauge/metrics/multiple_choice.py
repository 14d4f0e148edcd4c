"""Accuracy of a choice among (A) to (D), as LongBench v2 reads it from a response (Bai et al., 2024;
THUDM/LongBench at 2e00731, pred.py).
"""

import re

from ragauge.metrics.base import RecordFields


def score(record: RecordFields) -> float | None:
    """1.0 if the chosen letter is the answer, else 0.0, also where none is found. Reads `prediction`
    and `answers`; None if these are no letters from A to D. The letter follows "The correct answer
    is", first in brackets, then without; asterisks are left out before.
    """
    response = record["prediction"].replace("*", "")
    found = re.search(r"The correct answer is \(([A-D])\)", response)
    found = found or re.search("The correct answer is ([A-D])", response)
    letter = found[1] if found else ""
    return float(letter in record["answers"]) if {*"ABCD"} & {*record["answers"]} else None
