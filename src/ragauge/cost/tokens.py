"""Token counts of prompts, by name or from a file, and prompts of random tokens with these lengths."""

import random
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter

from ragauge.errors import UserError, unknown, validating
from ragauge.io import safe_yaml

# by the model's vocabulary; all others: GPT-NeoX's counts
TOKENIZERS = {250880: "bloom", 32000: "llama"}
KEYS = ("preamble", "documents", "query", "task")

TokenCount = Annotated[int, Field(ge=1, strict=True)]


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of each segment of a prompt."""

    preamble: TokenCount
    documents: Annotated[tuple[TokenCount, ...], Field(min_length=1)]
    query: TokenCount
    task: TokenCount

    @property
    def total(self) -> int:
        """Tokens of the plain prompt that holds them all."""
        return self.preamble + sum(self.documents) + self.query + self.task


def load(name_or_file: str, where: str = "--tokens", vocab: int = 0) -> TokenCounts:
    """Load the counts of `tokens.yaml` under a name, for the tokenizer with a vocabulary of this
    size, or of a file.

    Raises:
        UserError: neither a known name nor a file; a key missing or unknown; a count that is not a
            positive integer.
    """
    own = f"{name_or_file}.{TOKENIZERS.get(vocab)}"
    name = own if own in _entries() else name_or_file
    if name in _entries():
        return _counts(_entries()[name], name)
    path = Path(name_or_file)
    if not path.is_file():
        raise unknown("token counts", name_or_file, [*_entries(), "or a file"], where)
    try:
        return _counts(safe_yaml.load(path.read_text(encoding="utf-8")), name_or_file)
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(
            f"{name_or_file}: neither JSON nor YAML; it needs the keys {', '.join(KEYS)}"
        ) from None


@lru_cache(maxsize=64)
def random_segments(counts: TokenCounts, vocab: int, seed: int = 0) -> dict[str, Any]:
    """The fields of a `ragauge.methods.prompts.Prompt` of random token ids, with texts of as many
    words for rankers. Ids skip the first thousand of a large vocabulary, which hold special tokens.
    Word counts rank documents in order. What is returned stays for the next call, and is not to be
    changed.
    """
    draw = random.Random(seed)
    first = 1000 if vocab > 2000 else 0
    question = _words(draw, counts.query)

    def ids(count: int) -> list[int]:
        return [draw.randrange(first, vocab) for _ in range(count)]

    return {
        "opening": [],
        "preamble": ids(counts.preamble),
        "documents": list(map(ids, counts.documents)),
        "query": ids(counts.query),
        "task": ids(counts.task),
        "question": " ".join(question),
        "document_texts": tuple(
            " ".join((question[: max(1, counts.query - i)] + _words(draw, count))[:count])
            for i, count in enumerate(counts.documents)
        ),
        "gold": (0,),
    }


def _words(draw: random.Random, count: int) -> list[str]:
    letters = "".join(draw.choices(ascii_lowercase, k=3 * count))
    return [letters[i : i + 3] for i in range(0, len(letters), 3)]


def _counts(entry: object, place: str) -> TokenCounts:
    for key in entry if isinstance(entry, dict) else ():
        if key not in KEYS:
            raise unknown("key", key, KEYS, place)
    with validating(place, f"; token counts need {', '.join(KEYS)}"):
        return TypeAdapter(TokenCounts).validate_python(entry)


@cache
def _entries() -> dict[str, Any]:
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes()))
