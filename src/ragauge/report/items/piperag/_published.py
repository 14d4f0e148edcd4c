"""The numbers that PipeRAG prints and that its repository logs; the claims of its text, over all
pairs of systems.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple

from ragauge.io.jsonl import JsonObject
from ragauge.report.items.piperag._lines import PAPER
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Keys, Measure, noted
from ragauge.results.pipelines import IndexName, SequenceKey
from ragauge.results.publications import Printed, printed, read_csv, statement
from ragauge.results.systems import KEYS, System, Systems, plain

OTHER = "published for another model, corpus and machine"
OTHER_MACHINE = "published for another machine"
LOGGED = (
    "from the logs of the paper's repository, sequences of 512 tokens; published for another model"
)
KINDS = {"no_retrieval": "no_retrieval", "retro": "retro", "piperag_s3": "piperag"}
SPEEDUP = "speedup_at_no_higher_perplexity"
GAIN = "perplexity_gain_at_no_higher_latency"
NO_PAIR = "not run: no baseline and PipeRAG over this index were both scored and timed"
NOT_AS_GOOD = "no PipeRAG is at once as good and as fast as the baseline"


class Scored(NamedTuple):
    system: System
    perplexity: float
    seconds: float  # median of a sequence


Pair = tuple[Scored, Scored]  # a baseline, a PipeRAG


def row(dataset: str, kind: str, **more: Any) -> JsonObject:
    return {**dict.fromkeys(KEYS, ""), "model": PAPER, "dataset": dataset, "method": kind, **more}


def dataset(label: str) -> str:
    """Return the paper's name of a text: its label as far as the first underscore, so that c4_t5 is
    C4.
    """
    return label.partition("_")[0]


def table_1(quantities: tuple[str, ...] = ("perplexity", "latency_s")) -> list[Cell]:
    def keys(line: Printed) -> Keys:
        nprobe = "hide" if line["system"] == "piperag_s3" else ""
        return row(line["dataset"], KINDS[line["system"]], nprobe=nprobe)

    return printed("piperag_table_1", keys, quantities, OTHER)


def logged(*, swept: bool) -> list[Cell]:
    """Return the perplexities of the logs that vary interval or nprobe, or of those that vary
    neither.
    """
    cells = []
    for line in read_csv("piperag_perplexity_from_logs"):
        if swept != any(name in line["log"] for name in ("_interval_", "_nprobe_")):
            continue
        kind = "piperag" if line["staleness"] == "1" else "retro"
        kind = "no_retrieval" if line["no_retrieval"] == "1" else kind
        database = line["config_set"].partition("_eval_")[2].removesuffix(".json")
        dataset = "wikipedia" if line["config_set"].startswith("wikipedia") else "realnews"
        interval, nprobe = (
            int(text) if text.isdigit() else ""
            for text in (line["retrieval_interval"], line["nprobe"])
        )
        keys = row(dataset, kind, nprobe=nprobe, index=IndexName(database) if database else "")
        if kind != "no_retrieval":
            keys |= {"interval": interval, "options": _options(line)}
        cells.append(Cell(keys, "perplexity", Measure(note=LOGGED), float(line["perplexity"])))
    return cells


def _options(line: Mapping[str, str]) -> str:
    chunks = line["num_continuation_chunks"]
    parts = {"0": ["no continuation"], "1": []}.get(chunks, [f"{chunks} chunks of continuation"])
    if line["staleness"] == "1":
        is_dropped = line["remove_stale_context"] == "1"
        parts.append(f"stale context {'dropped' if is_dropped else 'kept'}")
    return ", ".join(parts)


def best_pairs(
    group: Systems, baseline: str, shared: set[SequenceKey], quantity: str = SPEEDUP
) -> Cells:
    """Yield for each index the largest speedup over the baseline at no higher perplexity, or the
    largest gain of perplexity over it at no higher latency.
    """
    for keys, pairs in _by_index(group, baseline, shared):
        if quantity == SPEEDUP:
            fitting = [
                (a.seconds / b.seconds, a, b) for a, b in pairs if b.perplexity <= a.perplexity
            ]
        else:
            fitting = [
                (a.perplexity - b.perplexity, a, b) for a, b in pairs if b.seconds <= a.seconds
            ]
        measure = Measure(reason=NOT_AS_GOOD if pairs else NO_PAIR)
        if fitting:
            most, a, b = max(fitting, key=itemgetter(0))
            measure = Measure(most, n=1)
            if quantity == SPEEDUP:
                measure = sequences.speedup(a.system, b.system)
            systems = (
                f"{s.kind} interval {s.interval} nprobe {s.keys['nprobe']}" for s, *_ in (a, b)
            )
            measure = noted(measure, f"the luckiest pair: {', '.join(systems)}")
        yield Cell(keys, quantity, measure)


def claims() -> list[Cell]:
    """Both claims over RETRO as the paper's text has them, in a row of their own: they are of
    another model.
    """
    keys = row("the paper's text", "piperag − retro")
    names = {
        SPEEDUP: "max_speedup_over_retro_at_equal_or_lower_perplexity",
        GAIN: "max_perplexity_reduction_at_equal_latency",
    }
    return stated(keys, names, OTHER)


def stated(keys: Keys, names: Mapping[str, str], note: str) -> list[Cell]:
    """Numbers of the paper's text, `names` by quantity, with a note."""
    measure = Measure(note=note)
    return [Cell(keys, q, measure, statement("piperag", name)) for q, name in names.items()]


def _by_index(
    group: Systems, baseline: str, shared: set[SequenceKey]
) -> Iterator[tuple[dict[str, object], list[Pair]]]:
    """Yield (keys of the row, pairs) of each index that PipeRAG was run on."""
    without_options = plain(group)
    for index in dict.fromkeys(s.index for s in group if s.kind == "piperag"):
        members = [s for s in group if s.index == index]
        keys = {key: members[0].keys[key] for key in ("model", "dataset", "database", "index")}
        measured: dict[str, list[Scored]] = {baseline: [], "piperag": []}
        for system in members:
            if system.kind in measured and system in without_options:
                perplexity = sequences.perplexity(system, shared).value
                seconds = sequences.latency(system).value
                if perplexity is not None and seconds is not None:
                    measured[system.kind].append(Scored(system, perplexity, seconds))
        pairs = list(product(measured[baseline], measured["piperag"]))
        yield keys | {"method": f"piperag − {baseline}"}, pairs
