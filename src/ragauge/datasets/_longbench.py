"""LongBench's question answering tasks over one long text (Bai et al., ACL 2024), in their official
format.

The prompts are those of THUDM/LongBench, config/dataset2prompt.json at 8ae23fd (copies of another
state have "asconcisely" in NarrativeQA's), and the lengths of the answers are the official ones.
Answers end at a newline here, as everywhere in this package. What is beyond the model's context is
cut out of the middle of the prompt, as the official code does.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.datasets.base.dataset import Dataset, Document, Example
from ragauge.errors import UserError
from ragauge.io.jsonl import field, strings
from ragauge.options import PositiveInt

_ARCHIVE = "https://huggingface.co/datasets/THUDM/LongBench/resolve/main/data.zip"

PASSAGES_PROMPT = (
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "The following are given passages.\n{context}\n\n"
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "Question: {input}\nAnswer:"
)


@dataclass(frozen=True)
class LongBench(Dataset):
    """One long text a question, which is the one document and gold."""

    metrics = ("f1", "em", "best_subspan_em")
    long = True
    questions = 200
    archive = ("LongBench", 0.114)
    # tokens of a whole prompt, where less than the model's context (Llama 2: 3,500)
    max_length: PositiveInt | None = None

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        task = self.name.removeprefix("longbench_")
        for name, right in (("dataset", [task, f"{task}_e"]), ("language", ["en"])):
            if record.get(name) and record[name] not in right:
                raise UserError(
                    f"{place}: field {name!r} must be {right[0]!r} in {self.name}, not {record[name]!r}"
                )
        question = field(record, "input", str, place)
        context = field(record, "context", str, place)
        return Example(
            key=str(record.get("_id") or "")
            or hashlib.sha256(f"{question}\0{context}".encode()).hexdigest()[:16],
            question=question,
            documents=(Document("", context),),
            answers=strings(record, "answers", place),
            gold=(0,),
        )


def archived(task: str) -> Mapping[str, Any]:
    """Arguments of `datasets.load_dataset` that read a task from the official archive."""
    return {"path": "json", "data_files": f"zip://data/{task}.jsonl::{_ARCHIVE}", "split": "train"}
