"""Articles, questions and settings with which fine-tuning is tested in seconds."""

import random

from json_lines import write_lines
from ragauge.methods.evidence.chat import Chat
from ragauge.testing import write_checkpoint
from ragauge.training import data
from ragauge.training.settings import TrainingSettings

# Damaged lines of a file of replies.
DAMAGED_REPLIES = ["{", "[]", '["key", 5]', '["key", [5]]', "[" * 100_000]
THINGS = (
    "river",
    "bridge",
    "stone",
    "castle",
    "market",
    "garden",
    "winter",
    "engine",
    "planet",
    "copper",
    "island",
)


def article(number, sentences=40):
    """Sentences that no other number has."""
    draw = random.Random(number)

    def thing():
        return draw.choice(THINGS)

    return " ".join(
        f"The {thing()} of {thing()} {number}-{i} was built near the {thing()} in {draw.randrange(1500, 1999)}."
        for i in range(sentences)
    )


def write_corpus(path, count=10):
    """A corpus of articles, and a stub among them."""
    records = [{"title": f"Town {i}", "text": article(i)} for i in range(count)]
    return write_lines(path, [*records, {"title": "Stub", "text": article(99, 2)}])


class Parrot(Chat):
    """Asks for the last words of the span; counts its calls, and can give up."""

    name = "parrot"

    def __init__(self, gives_up_after=None):
        self.calls = 0
        self.gives_up_after = gives_up_after

    def replies(self, requests, max_tokens, cue="", instruction=""):
        if self.calls == self.gives_up_after:
            raise KeyboardInterrupt
        self.calls += 1
        return [_question(*request.split("\n\nWrite a question about ")) for request in requests]


def _question(text, request):
    title = request.removesuffix(" that the text above answers.")
    return f"Question: What of {title} was {' '.join(text.split()[-3:])[:-1]} about?"


def settings(folder, **changes):
    """A training of a tiny model on a tiny corpus, in a folder; both are made."""
    if not (folder / "model").exists():
        write_checkpoint(folder / "model")
        write_corpus(folder / "corpus.jsonl")
    given = {
        "model": str(folder / "model"),
        "corpora": [str(folder / "corpus.jsonl")],
        "min_characters": 1000,
        "documents": 6,
        "held_out_documents": 2,
        "document_tokens": 400,
        "spans": 2,
        "engine": "torch",
        "dtype": "float32",
        "steps": 6,
        "accumulation": 2,
        "lr": 1e-3,
        "warmup_steps": 1,
        "checkpoint_steps": 2,
        "evaluate_steps": 3,
    }
    return TrainingSettings(**given | changes)


def built(folder, monkeypatch, **changes):
    """The folder of the data of these settings."""
    monkeypatch.setattr(data.QuestionWriter, "model", lambda self: Parrot())
    data.build(settings(folder, **changes).data(), {}, folder / "data")
    return folder / "data"
