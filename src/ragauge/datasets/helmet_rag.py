"""HELMET's retrieval-augmented generation: KILT's NQ, TriviaQA and HotpotQA, and PopQA, over
retrieved passages (Yen et al., ICLR 2025).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ragauge.datasets.base.dataset import Dataset, Document, Example
from ragauge.io.jsonl import field, number, objects, strings


@dataclass(frozen=True)
class HelmetRAG(Dataset):
    """Questions of a file of HELMET's `data/kilt`, such as nq-dev-multikilt_1000_k105_dep6.jsonl.

    The prompt is that of princeton-nlp/HELMET at 4526dfb (data.py, configs/rag.yaml), under the
    template `plain` to the letter but for the solved questions: they are the same in every prompt,
    the first of their file, where the official code draws some for each question. A question comes
    once for each place of its gold passage.
    """

    preamble = (
        "Use the given documents to write a concise and short answer to the question. Write your answer in the "
        "following format:\nAnswer: [answer]\n\n{demos}{context}Question: {input}\nAnswer:"
    )
    metrics = ("substring_exact_match", "em", "f1")
    max_new_tokens = 20
    # file of solved questions, such as nq-train-multikilt_1000_k3_dep6.jsonl; None: without any
    demos: str | None = None
    # only subjects with fewer monthly views, as a power of ten (HELMET's popqa_3: 3)
    popularity: float | None = None

    @property
    def instruction(self) -> str:
        examples = self.examples(Path(self.demos)) if self.demos else ()
        solved = {example.question: example for _, example in examples}
        texts = [
            "".join(document.text for document in example.documents)
            + f"Question: {example.question}\nAnswer: {example.answers[0]}\n\n"
            for example in islice(solved.values(), 2)  # `shots` of the official configuration
        ]
        return self.preamble.replace("{demos}", "".join(texts))

    def includes(self, record: Mapping[str, Any], place: str) -> bool:
        most = self.popularity
        return most is None or number(record, "s_pop", place) < 10**most

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        texts = [
            f"Document (Title: {field(row, 'title', str, at)}): {field(row, 'text', str, at)}\n\n"
            for row, at in objects(record, "ctxs", place)
        ]
        return Example(
            place.rpartition(":")[2],  # an id comes once for each place of the gold passage
            field(record, "question", str, place),
            tuple(Document("", text) for text in texts),
            strings(record, "answers", place),
            gold=(),  # which the official code does not read
        )
