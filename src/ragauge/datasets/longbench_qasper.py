"""Qasper in LongBench: scientific articles (Dasigi et al., NAACL 2021)."""

from dataclasses import dataclass

from ragauge.datasets._longbench import LongBench, archived

_RULES = (
    "Answer the question as concisely as you can, using a single phrase or sentence if possible. If the question "
    'cannot be answered based on the information in the article, write "unanswerable". If the question is a yes/no '
    'question, answer "yes", "no", or "unanswerable". Do not provide any explanation.'
)


@dataclass(frozen=True)
class LongBenchQasper(LongBench):
    """Questions on a scientific article, some with no answer in it."""

    preamble = (
        f"You are given a scientific article and a question. {_RULES}\n\n"
        "Article: {context}\n\n"
        f" {_RULES.replace('question as', 'question based on the above article as', 1)}\n\n"
        "Question: {input}\n\nAnswer:"
    )
    max_new_tokens = 128
    counts = "longbench_qasper"
    hub = archived("qasper")
