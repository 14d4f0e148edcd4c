"""RULER's synthetic tasks as sets of documents: needles, variables, common words (`ruler.yaml`).

All documents of a question have the same tokens in number under a tokenizer that has common words
as one token each (SmolLM2's and Qwen2.5's do), and as many words of the question: no rule of length,
place or single words finds the gold ones; a needle's key, two words together, does. In
`common_words` all documents are gold.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import yaml

from ragauge.datasets._ruler import RulerDataset
from ragauge.datasets._wiki import QUESTIONS
from ragauge.datasets.base.dataset import Example
from ragauge.errors import UserError
from ragauge.io.jsonl import field

_FACTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
NAMED = 10  # words of each list that a question may name


@dataclass(frozen=True)
class Ruler(RulerDataset):
    """The questions of a task, by their `number` in the file, with the same needles at every length."""

    preamble = ""  # each task has its own
    metrics = ("string_match_all", "kept_gold_recall")
    questions = 500
    # whether an answer may go on after a line end; None: if it is a list, which many models write so
    several_lines: bool | None = None
    task: Literal[
        "needle_single",
        "needle_multikey",
        "needle_multivalue",
        "needle_multiquery",
        "variable_tracking",
        "common_words",
    ] = "needle_single"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What `ruler.yaml` says of the task."""
        return _FACTS["tasks"][self.task]

    @property
    def instruction(self) -> str:
        return str(self.facts["instruction"])

    @property
    def max_new_tokens(self) -> int:  # type: ignore[override]  # a class variable elsewhere
        return self.facts.get("max_new_tokens", 128)

    def __post_init__(self) -> None:
        if self.several_lines is None:
            object.__setattr__(self, "several_lines", " " in self.facts["answers"])
        least = len(self.facts["gold"])
        most = self.tokens // self.facts["other_tokens"]
        if not least <= self.documents <= most:
            raise UserError(
                f"dataset ruler.documents: {self.task} of {self.tokens} tokens has {least} to {most}; "
                f"got {self.documents}"
            )

    def default_path(self) -> Path:
        return QUESTIONS / "ruler.jsonl"

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        number = field(record, "number", int, place)
        facts = self.facts
        plain = (self.tokens // self.documents - facts["other_tokens"]) // facts["plain_tokens"]
        draw = Random(f"{self.seed} {self.task} {number}")
        write = _writer(draw)
        question = write(facts["question"])
        answers = tuple(write(facts["answers"]).split())
        texts = []
        for row in islice(chain(facts["gold"], cycle(facts["others"])), self.documents):
            sentences = row + draw.choices(facts["plain"], k=plain)
            draw.shuffle(sentences)
            texts.append(write(" ".join(sentences)))
        gold = tuple(range(len(facts["gold"]) or self.documents))
        example = Example(f"{self.task}-{number}", question, (), answers, gold)
        return self.arranged(number, example, texts)


def _writer(draw: Random) -> Callable[[str], str]:
    """Return what writes the words of a question into texts in place of their names."""
    lists = {kind: draw.sample(words, len(words)) for kind, words in _FACTS["words"].items()}

    def word(name: re.Match[str]) -> str:
        words = lists[name[1]]
        return str(words[int(name[2])] if name[2] else draw.choice(words[NAMED:]))

    return partial(re.sub, r"{(\w)(\d*)}", word)
