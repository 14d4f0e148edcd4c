"""Why a method that needs a hundredth of the MACs is not a hundred times as fast
(docs/protocols.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ragauge.cost.cycles import critical_path
from ragauge.cost.flop import call_macs
from ragauge.cost.roofline import MachineRates, floor_seconds, product_seconds
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, online

Stages = Mapping[str, Mapping[str, float]]
UNCOUNTED = "decode"  # the stage that the theory leaves out
PARTS = ("theory_s", "parallel_paths_s", "memory_s", "kernels_s")


def stages(
    trace: Iterable[Call], shape: Shape, dtype: object, machine: MachineRates
) -> dict[str, dict[str, float]]:
    """Sum a traced answer's online calls by stage: `seconds` by the clock, `roofline_s` and how
    much of it is `memory_s`, `compute_cycles` on the critical path, and `macs` of all rows.
    """
    sums: dict[str, dict[str, float]] = {}
    for call in online(trace):
        floor = floor_seconds(call, shape, dtype, machine)
        products = product_seconds(call, shape, dtype, machine)
        values = {
            "seconds": call.seconds or 0.0,
            "roofline_s": floor,
            "memory_s": floor - products,
            "compute_cycles": critical_path([call], shape),
            "macs": call_macs(call, shape),
        }
        stage = sums.setdefault(call.stage, dict.fromkeys(values, 0.0))
        for key, value in values.items():
            stage[key] += value
    return sums


def explain(method: Stages, total_s: float, naive: Stages, naive_total_s: float) -> dict[str, Any]:
    """Compute the three speedups of a method over naive from `stages` and median seconds of a
    response of each. Returns: `theoretical_speedup`, `roofline_speedup`, `measured_speedup`,
    `gap_s`, `stages` (PARTS of each) and `between_calls_s`, as docs/protocols.md defines
    them.
    """
    cycle_s = naive_total_s / _counted(naive)
    parts = {}
    for stage, values in method.items():
        theory = 0.0 if stage == UNCOUNTED else cycle_s * values["compute_cycles"]
        parallel = cycle_s * (values["macs"] - values["compute_cycles"])
        kernels = values["seconds"] - theory - parallel - values["memory_s"]
        parts[stage] = dict(
            zip(PARTS, (theory, parallel, values["memory_s"], kernels), strict=True)
        )
    called_s = sum(values["seconds"] for values in method.values())
    return {
        "theoretical_speedup": _counted(naive) / _counted(method),
        "roofline_speedup": floor(naive) / floor(method),
        "measured_speedup": naive_total_s / total_s,
        "gap_s": total_s - cycle_s * _counted(method),
        "stages": parts,
        "between_calls_s": total_s - called_s,
    }


def shares(stages: Stages, between_calls_s: float, gap_s: float) -> dict[str, float]:
    """The shares of a gap that each stage and the time between calls make up; they sum to 1.

    Args: what `explain` returned under these names.
    """
    beyond = {stage: sum(parts[key] for key in PARTS[1:]) for stage, parts in stages.items()}
    beyond["between calls"] = between_calls_s
    return {name: seconds / gap_s for name, seconds in beyond.items()} if gap_s else {}


def _counted(stages: Stages) -> float:
    return sum(values["compute_cycles"] for stage, values in stages.items() if stage != UNCOUNTED)


def floor(stages: Stages) -> float:
    """Seconds of the roofline, of all stages."""
    return sum(values["roofline_s"] for values in stages.values())
