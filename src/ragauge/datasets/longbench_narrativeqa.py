"""NarrativeQA in LongBench: stories, whole books or film scripts (Kočiský et al., TACL 2018)."""

from dataclasses import dataclass

from ragauge.datasets._longbench import LongBench, archived


@dataclass(frozen=True)
class LongBenchNarrativeQA(LongBench):
    """Questions on a story, answered in people's own words."""

    preamble = (
        "You are given a story, which can be either a novel or a movie script, and a question. Answer the question "
        "as concisely as you can, using a single phrase if possible. Do not provide any explanation.\n\n"
        "Story: {context}\n\n"
        "Now, answer the question based on the story as concisely as you can, using a single phrase if possible. "
        "Do not provide any explanation.\n\nQuestion: {input}\n\nAnswer:"
    )
    max_new_tokens = 128
    counts = "longbench_narrativeqa"
    hub = archived("narrativeqa")
