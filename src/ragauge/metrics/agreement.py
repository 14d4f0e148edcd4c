"""Whether an answer says what the full prompt's does: what can be measured where no answer is
known.
"""

from ragauge.metrics.base import RecordFields, token_f1
from ragauge.text import words


def score(record: RecordFields) -> float | None:
    """The F1 of the prediction's words against those of the answer from all documents in one
    prompt, in [0, 1]. Reads `prediction`, and `full_prompt`, that answer, which does not stand in a
    record: None without it. It says what a method changes, not whether that is for the better: the
    full prompt's answer may be wrong. Chinese, Japanese, Thai and Korean are compared by characters.
    """
    full = record.get("full_prompt")
    return None if full is None else token_f1(words(record["prediction"]), words(full))
