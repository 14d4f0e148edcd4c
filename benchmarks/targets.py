"""Every target of the benchmarks, and the verdict on a measured value.

    python benchmarks/targets.py        the table of targets, as it stands in benchmarks/README.md

A script measures a value, calls `Verdicts.check` with the target's name, and ends with
`_common.finish`, which prints the result as one JSON object where `--json` is given.
"""

from dataclasses import dataclass, field
from typing import Any

from ragauge.cost.roofline import LEAST_RATIO

LATENCY = "`online_latency.py`"
PEERS = "`peers.py`"
STARTUP = "`startup.py`"
EMBEDDING = "`embedding.py`"
GPU = "`gpu.py`"
REUSE = "`reuse.py`"


@dataclass(frozen=True)
class Target:
    """A limit on one measured value."""

    what: str  # the value, with its unit unless it is a ratio
    limit: float
    printed_by: str  # the command that prints the verdict
    at_least: bool = False  # else at most
    is_floor: bool = False  # a ratio to a least time: a fault below `LEAST_RATIO`

    def is_fault(self, value: float) -> bool:
        return self.is_floor and value < LEAST_RATIO

    def met(self, value: float) -> bool:
        return not self.is_fault(value) and (
            value >= self.limit if self.at_least else value <= self.limit
        )

    @property
    def bound(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


TARGETS = {
    "auto_decode": Target(
        "decode at `dtype: auto` over the faster of float32 and bfloat16", 1.05, PEERS
    ),
    "auto_prefill": Target(
        "prefill at `dtype: auto` over the faster of float32 and bfloat16", 1.05, PEERS
    ),
    "int8_decode_openvino": Target(
        "decode after 1,000 at int8 over OpenVINO's, same GGUF", 1.0, PEERS
    ),
    "int8_decode_llama_cpp": Target(
        "decode after 1,000 at int8 over llama.cpp's, same GGUF", 1.0, PEERS
    ),
    "int4_decode_llama_cpp": Target(
        "decode after 1,000 at int4 over llama.cpp's, same GGUF", 0.6, PEERS
    ),
    "int8_decode_roofline": Target(
        "decode after 1,000 at int8 over the roofline of its own bytes", 1.3, PEERS, is_floor=True
    ),
    "int8_prefill_openvino": Target(
        "prefill of 3,000 at int8 over OpenVINO's, same GGUF", 0.5, PEERS
    ),
    "method_roofline": Target(
        "an answer of each method over the roofline of its own trace", 1.3, LATENCY, is_floor=True
    ),
    "superposition_over_naive": Target(
        "naive over superposition with one kept document, float32", 10, LATENCY, at_least=True
    ),
    "batch8": Target(
        "a question one by one over 8 side by side, 128 tokens read, 32 written",
        2.5,
        PEERS,
        at_least=True,
    ),
    "reuse_work": Target(
        "first token over full prefill, over the same ratio of multiply-accumulates", 1.3, REUSE
    ),
    "reuse_move": Target("moving cached keys over reading the documents", 0.05, REUSE),
    "reuse_choosing": Target("choosing the tokens to read again over full prefill", 0.03, REUSE),
    "cache_blend_speedup": Target(
        "full prefill over `cache_blend` at 0.16, 10 documents of 1,024 tokens",
        3,
        REUSE,
        at_least=True,
    ),
    "epic_speedup": Target(
        "full prefill over `epic` with 16 tokens, 10 documents of 1,024 tokens",
        4,
        REUSE,
        at_least=True,
    ),
    "smoke_s": Target("`make smoke` from nothing but the environment, seconds", 150, STARTUP),
    "default_s": Target(
        "the default `make` from nothing but the environment, seconds", 600, STARTUP
    ),
    "tests_s": Target("`make test`, seconds", 300, STARTUP),
    "full_s": Target("`make full` from nothing but the environment, seconds", 2400, STARTUP),
    "estimate": Target(
        "how far a run's time is from what its first line of progress says, as a part of it",
        0.33,
        STARTUP,
    ),
    "second_make_s": Target("a second `make` with nothing to do, seconds", 4, STARTUP),
    "help_s": Target("`ragauge --help`, seconds", 0.3, STARTUP),
    "one_question_s": Target(
        "`ragauge run` of one question on a fetched model, seconds", 4, STARTUP
    ),
    "embedding": Target(
        "chunks a second over sentence-transformers', our fastest engine and type",
        2,
        EMBEDDING,
        at_least=True,
    ),
    "embedding_cosine": Target(
        "smallest cosine of a vector to sentence-transformers'", 0.999, EMBEDDING, at_least=True
    ),
    "gpu_decode_roofline": Target(
        "decode by CUDA graphs over the roofline, shapes of a 7B model", 1.3, GPU, is_floor=True
    ),
    "gpu_prefill_rate": Target(
        "prefill over the device's measured bfloat16 rate", 0.6, GPU, at_least=True
    ),
}


@dataclass
class Verdicts:
    """Which targets a run met."""

    found: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # target -> why it was not measured

    def check(self, name: str, value: float, of: str = "") -> bool:
        """Print and keep the verdict on a value of TARGETS[name]; `of` names a method or dtype."""
        target = TARGETS[name]
        label = f"{name} {of}".strip()
        met = target.met(value)
        fault = target.is_fault(value)
        self.found.append(
            {"target": label, "value": value, "bound": target.bound, "met": met, "fault": fault}
        )
        verdict = (
            "fault of the measurement (less than the least time):"
            if fault
            else "met"
            if met
            else "missed"
        )
        print(f"{verdict:6} {label}: {value:.3g} ({target.bound}; {target.what})")
        return met

    def skip(self, name: str, reason: str) -> None:
        self.skipped[name] = reason
        print(f"not measured: {name} ({TARGETS[name].what}): {reason}")

    def to_json(self) -> dict[str, Any]:
        """{"targets", "missed", "not_measured"}."""
        missed = [verdict["target"] for verdict in self.found if not verdict["met"]]
        return {"targets": self.found, "missed": missed, "not_measured": self.skipped}


def table() -> str:
    """Markdown: a row a target."""
    rows = [
        f"| `{name}` | {one.what} | {one.bound} | {one.printed_by} |"
        for name, one in TARGETS.items()
    ]
    return "\n".join(["| target | what | limit | printed by |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table())
