"""MultiFieldQA-en in LongBench: texts of many fields, LongBench's own."""

from dataclasses import dataclass

from ragauge.datasets._longbench import LongBench, archived


@dataclass(frozen=True)
class LongBenchMultiFieldQA(LongBench):
    """Questions on a text of any field: law, government, science, news."""

    preamble = (
        "Read the following text and answer briefly.\n\n{context}\n\n"
        "Now, answer the following question based on the above text, only give me the answer and do not output any "
        "other words.\n\nQuestion: {input}\nAnswer:"
    )
    max_new_tokens = 64
    questions = 150
    counts = "longbench_multifieldqa_en"
    hub = archived("multifieldqa_en")
