"""Whether an answer stands in what the model was shown."""

from ragauge.metrics.base import RecordFields
from ragauge.text import words


def score(record: RecordFields) -> float | None:
    """The share of the prediction's words, those of the question left out, that the passages used
    hold, in [0, 1].

    Reads `prediction`, `question`, and `passages`, the texts of the documents that were used, which
    do not stand in a record. None without them, where none was used, and where the prediction has
    no word of its own. Words may stand in the passages in another order and say something else
    there: it finds what was made up, not what was misread.
    """
    passages = record.get("passages")
    own = set(words(record["prediction"])) - set(words(record["question"]))
    if not passages or not own:
        return None
    return len(own & set(words("\n".join(passages)))) / len(own)
