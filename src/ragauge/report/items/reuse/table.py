"""Methods that reuse documents' keys and values, compared with the claims of their papers.

What this shows: for each variant that reads documents before the question or compresses them, and
for the plain prompt, the primary metric and its difference to the plain prompt on the same
questions, with a paired test; the median seconds to the first token and the speedup over the plain
prompt; seconds of each further token; seconds of the work before the question and the bytes of keys
and values that stay of it; the largest size of keys and values; and the share of the documents'
tokens that was read again with the question, counted over layers. `state` is what was read before
the question (docs/protocols.md); a row and its speedup are in one state alone. A paper's number is
its largest speedup of the first token over reading everything, of larger models on GPUs with long
documents that were all cached. EPIC and APE state none (EPIC's factor of 8 is over CacheBlend,
APE's of 4.5 is of complete answers).

Limits: differences mean nothing where the plain prompt is hardly ever right, and the note says so.
Seconds are the latency protocol's where it timed, on the data set, all these variants that have
seconds of the answering run, else that run's; answers given side by side have none.
"""

from functools import partial
from itertools import product

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Dots, Figure, style
from ragauge.report.items.reuse._family import OWN, VariantSeconds, answers, belongs, floor
from ragauge.results import timing
from ragauge.results.cells import (
    Cells,
    CellSource,
    Measures,
    Table,
    frame,
    mean,
    merge,
    noted,
    row_cells,
)
from ragauge.results.measures import difference, quality
from ragauge.results.publications import published
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.states import preparation
from ragauge.results.times import State

KEYS = ("model", "dataset", "state", "method", "variant")
SPEEDUP = "first_token_speedup"
UNRECORDED = "not recorded"

READS = Reads(answers=answers(), latency="any")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    claims = published("reuse_table", ("model", "method"), {SPEEDUP: SPEEDUP}, "")
    return frame(KEYS, merge(measured, claims, ("method",)))


DOTS = Dots(
    {"quality": Axis("quality"), SPEEDUP: Axis("speedup to first token", "log")},
    name=lambda line: line["variant"].replace("_", " ") or style.method_label(line["method"]),
)


def draw(table: Table) -> Figure:
    """Quality once, since it is the same in each state, and the speedups in all."""
    first = table.groupby(["model", "dataset"])["state"].transform("first")
    return DOTS(table[(table["state"] == first) | (table["quantity"] == SPEEDUP)])


def _group(group: Group) -> Cells:
    base = group.naive
    shown = [v for v in group.variants if belongs(v)]
    clock = VariantSeconds.find(group, shown)
    for state, variant in product(clock.states, shown):
        keys = variant.keys | {"state": state}
        yield from row_cells(keys, _measures(variant, base, clock, state))


def _measures(
    variant: Variant, base: Variant | None, clock: VariantSeconds, state: State
) -> Measures:
    weak = floor(base)
    seconds = partial(
        timing.quartiles,
        note=clock.note(state),
        source=clock.source,
        nothing="not timed in this state" if clock.timed else UNRECORDED,
    )
    measures = {
        "quality": noted(quality(variant), weak),
        "first_token_s": seconds(clock.first_tokens(variant, state)),
        "token_s": seconds(clock.tokens(variant, state)),
        **preparation(variant, clock.timed, state),
        "cache_bytes": timing.quartiles(
            variant.values("cache_bytes"), OWN, CellSource.RECORDS, nothing=UNRECORDED
        ),
        "read_again": mean(
            list(read_again(variant).values()), variant.runs.seed, nothing="no traces"
        ),
    }
    if base is None or base is variant:
        return measures
    return measures | {
        SPEEDUP: clock.sooner(base, variant, state),
        "difference": noted(difference(variant, base), weak),
    }


def read_again(variant: Variant) -> dict[str, float]:
    """The share of each question's document tokens that was written again over its stored self, by
    layers.
    """
    layers = variant.shape.layers if variant.shape else 1
    shares = {}
    for key, trace in variant.traces.items():
        counts = variant.records[key].tokens
        tokens = sum(counts.get("documents") or [])
        question = counts.get("query", 0) + counts.get("task", 0)
        again = 0.0
        for call in trace:
            if call.again:
                first, last = call.layers or (0, layers)
                # a call that goes on from a layer with the question writes it again as well
                asked = question * (first > 0 and call.stage == "prompt")
                again += (sum(call.again) - asked) * (last - first) / layers
        if tokens:
            shares[key] = again / tokens
    return shares
