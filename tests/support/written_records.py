"""Records of six questions, and runs that write them."""

from ragauge.io.record_writer import RecordWriter
from ragauge.io.records import Record

KEYS = [f"q{i}" for i in range(6)]
SETTINGS = {"method": "bm25", "top_k": 2}


def answered(key):
    fields = {
        "status": "ok",
        "question": "who",
        "answers": ["me"],
        "gold": [0],
        "documents": 2,
        "prompt_sha256": "0",
    }
    call = {"stage": "prompt", "lengths": [9], "past": [0], "seconds": 0.5}
    text = {"key": key, "text": f"x\u2028é{key}", "saliency": [0.1, None], "trace": [call]}
    return Record.model_validate(fields | text)


def run(out, keys=KEYS, settings=SETTINGS, **options):
    """Do a complete run and return the keys that were asked."""
    answered_keys = []
    with RecordWriter(out, settings, keys, **options) as writer:
        for key in keys:
            if key not in writer.done:
                writer.start(key)
                writer.append(answered(key))
                answered_keys.append(key)
        writer.finish({"host": "here"})
    return answered_keys
