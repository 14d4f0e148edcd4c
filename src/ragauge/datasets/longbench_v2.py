"""LongBench v2: questions with four choices over texts of up to two million words (Bai et al., 2024)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ragauge.datasets._longbench import LongBench
from ragauge.datasets.base.dataset import Document, Example
from ragauge.errors import UserError
from ragauge.io.jsonl import field

_FIELDS = ["_id", "context", "answer", "question", "choice_A", "choice_B", "choice_C", "choice_D"]
_GROUPS = {"difficulty": ("easy", "hard"), "length": ("short", "medium", "long")}


@dataclass(frozen=True)
class LongBenchV2(LongBench):
    """The 503 questions, or those of a difficulty or length, by which accuracy is published.

    The prompt is that of THUDM/LongBench at 2e00731, prompts/0shot.txt.
    """

    preamble = (
        "Please read the following text and answer the question below.\n\n<text>\n{context}\n</text>\n\n"
        "What is the correct answer to this question: {input}\n\n"
        'Format your response as follows: "The correct answer is (insert answer here)".'
    )
    metrics = ("multiple_choice",)  # type: ignore[assignment]  # LongBench's are three
    max_new_tokens = 128
    questions = 503
    archive = ("LongBench-v2", 0.47)
    hub = {"path": "THUDM/LongBench-v2", "split": "train"}
    several_lines: bool = True  # an answer may go on after a line end, as in the official code
    difficulty: Literal["easy", "hard"] | None = None
    length: Literal["short", "medium", "long"] | None = None

    def includes(self, record: Mapping[str, Any], place: str) -> bool:
        for name, known in _GROUPS.items():
            wanted = getattr(self, name)
            value = field(record, name, str, place) if wanted else None
            if value and value not in known:
                choices = ", ".join(known)
                raise UserError(f"{place}: field {name!r} must be one of {choices}, not {value!r}")
            if value != wanted:
                return False
        return True

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        texts = [field(record, name, str, place).strip() for name in _FIELDS]
        key, context, answer, question, *choices = texts
        asked = "{}\nChoices:\n(A) {}\n(B) {}\n(C) {}\n(D) {}".format(question, *choices)
        return Example(key, asked, (Document("", context),), (answer,), gold=(0,))
