"""MultiFieldQA-en in LongBench: texts of many fields, LongBench's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ragauge.datasets._longbench import LongBench, archived


@dataclass(frozen=True)
class LongBenchMultiFieldQA(LongBench):
    """Questions on a text of any field: law, government, science, news."""

    preamble: ClassVar[str] = (
        "Read the following text and answer briefly.\n\n{context}\n\n"
        "Now, answer the following question based on the above text, only give me the answer and do not output any "
        "other words.\n\nQuestion: {input}\nAnswer:"
    )
    max_new_tokens: ClassVar[int | None] = 64
    questions: ClassVar[int | None] = 150
    counts: ClassVar[str | None] = "longbench_multifieldqa_en"
    hub: ClassVar[Mapping[str, Any]] = archived("multifieldqa_en")
