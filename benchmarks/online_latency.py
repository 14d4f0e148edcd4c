"""Superposition with k=1 against naive by the paper's protocol, beside their rooflines.

    python benchmarks/online_latency.py [--model smollm2-135m-instruct] [--dtypes float32,bfloat16] [--threads 2]
        [--methods prompt_cache,attention_sort] [--json]

Random tokens of the published lengths (a preamble of 39, 20 documents of 137, a question of 11, a
task of 13) on random weights of the model's shape; 5 tokens are generated. What superposition
prepares before the question is ready; the protocol is `ragauge.measure.latency`.
"""

import statistics
import sys
from collections.abc import Mapping
from typing import Any

from _common import DTYPES, THREADS, finish, parse_options
from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings
from ragauge.cost import machine
from ragauge.engines.tuning import weight_read
from ragauge.measure.protocols.latency import measure_latency
from ragauge.measure.timing import bench_of_shape
from ragauge.methods.base.making import make
from targets import Verdicts

BASE = "naive"
FAST = "superposition"
# as in the paper: superposition has read its documents before the question, the plain prompt nothing
STATES = {BASE: "nothing"}


def main() -> None:
    args = parse_options(
        __doc__,
        model=("smollm2-135m-instruct", "a model whose shape is known, or a folder"),
        dtypes=DTYPES,
        methods=([], f"timed beside {BASE} and {FAST} with top_k=1"),
        threads=THREADS,
        trials=(30, "of each method"),
        tokens=("paper", "token counts, by name or file"),
        allow_load=(False, "report although other processes were busy"),
    )
    rates = machine.measure(
        threads=args.threads, allow_load=args.allow_load, weight_read=weight_read
    )
    verdicts = Verdicts()
    results = {}
    for dtype in args.dtypes:
        variants = {
            BASE: make(BASE),
            FAST: make(FAST, top_k=1),
            **{name: make(name) for name in args.methods},
        }
        settings = LatencySettings(
            methods=list(variants),
            dataset=args.tokens,
            trials=args.trials,
            states=["nothing", "set"],
            answer_tokens=None,
            allow_load=args.allow_load,
        )
        bench = bench_of_shape(
            args.tokens,
            ModelEntry(source=args.model, dtype=dtype),
            settings.new_tokens,
            args.threads,
        )
        times = measure_latency(variants, bench, settings, machine=rates)
        results[dtype] = result = times.to_json()
        if result["refused"]:
            sys.exit(f"{dtype}: {result['refused']}")
        _report(f"{args.model} {dtype}", result)
        _judge(verdicts, dtype, result)
    finish({"results": results}, verdicts, args.json)


def _report(title: str, result: Mapping[str, Any]) -> None:
    """Medians with quartiles, each over its roofline floor, and the ratios between the two methods."""
    protocol = result["protocol"]
    load = result["load"]
    print(
        f"\n{title} on {result['provenance']['cpu']}, {protocol['threads']} threads, {protocol['trials']} trials"
    )
    for name in result["usable"]:
        times = _times(result, name)
        total = times["total_s"]
        first = times["first_token_s"]
        floor = _constant(result, name, "roofline_s")
        print(
            f"  {name:14} {total['median']:.4f} s  [{total['q1']:.4f}, {total['q3']:.4f}], first token "
            f"{first['median']:.4f} s; roofline floor {floor:.4f} s, time over floor {total['median'] / floor:.2f}"
        )
    totals, floors, flops = (_ratio(result, key) for key in ("total_s", "roofline_s", "flop"))
    print(
        f"  {BASE} over {FAST}: {totals:.2f} in time, {floors:.2f} between the floors, {flops:.2f} in FLOPs"
    )
    print(
        f"  competing load {load['share']:.1%} (allowed: {load['allowed_share']:.0%}); of {len(result['rows'])} trials "
        f"{load['disturbed']} stayed disturbed after {load['retried']} repetitions"
    )


def _judge(verdicts: Verdicts, dtype: str, result: Mapping[str, Any]) -> None:
    for name in result["usable"]:
        floor = _constant(result, name, "roofline_s")
        total_s = _constant(result, name, "total_s")
        verdicts.check("method_roofline", total_s / floor, of=f"{name} {dtype}")
    if dtype == "float32":
        verdicts.check("superposition_over_naive", _ratio(result, "total_s"))


def _ratio(result: Mapping[str, Any], key: str) -> float:
    """Median of the naive trials over the median of superposition's."""
    return _constant(result, BASE, key) / _constant(result, FAST, key)


def _constant(result: Mapping[str, Any], variant: str, key: str) -> float:
    """The median of a variant's trials; floors and FLOPs are the same in all of them."""
    if key in _times(result, variant):
        return float(_times(result, variant)[key]["median"])
    state = STATES.get(variant, result["usable"][variant])
    rows = (row for row in result["rows"] if (row["variant"], row["state"]) == (variant, state))
    return statistics.median(row[key] for row in rows)


def _times(result: Mapping[str, Any], variant: str) -> Mapping[str, Any]:
    times: Mapping[str, Any] = result["states"][_state(variant)]["summary"][variant]
    return times


def _state(variant: str) -> str:
    """What was read before the question that a variant is timed on."""
    return STATES.get(variant, "set")


if __name__ == "__main__":
    main()
