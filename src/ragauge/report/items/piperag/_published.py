"""The numbers that PipeRAG prints and that its repository logs; the claims of its text, over all
pairs of systems.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragauge.report.items.piperag._lines import PAPER
from ragauge.results import sequences
from ragauge.results.cells import Cell, Measure, noted
from ragauge.results.pipelines import IndexName, Text
from ragauge.results.publications import read_csv
from ragauge.results.runs import Runs
from ragauge.results.systems import KEYS, System, plain

OTHER = "published for another model, corpus and machine"
OTHER_MACHINE = "published for another machine"
# from no retrieval, in brackets in Table 1
DIFFERENCES = ("latency_difference_s", "perplexity_difference")
LOGGED = (
    "from the logs of the paper's repository, sequences of 512 tokens; published for another model"
)
KINDS = {"no_retrieval": "no_retrieval", "retro": "retro", "piperag_s3": "piperag"}
SPEEDUP = "speedup_at_no_higher_perplexity"
GAIN = "perplexity_gain_at_no_higher_latency"
Scored = tuple[System, float, float]  # a system, its perplexity and its median seconds
Pair = tuple[Scored, Scored]  # a baseline, a PipeRAG


def statement(name: str) -> float:
    return next(
        float(row["value"]) for row in read_csv("piperag_statements") if row["item"] == name
    )


def row(dataset: str, kind: str, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(KEYS, ""), "model": PAPER, "dataset": dataset, "method": kind, **more}


def dataset(label: str) -> str:
    """The paper's name of a text: its label as far as the first underscore, so that c4_t5 is C4."""
    return label.partition("_")[0]


def table_1(quantities: tuple[str, ...] = ("perplexity", "latency_s")) -> list[Cell]:
    cells = []
    for line in read_csv("piperag_table_1"):
        nprobe = "hide" if line["system"] == "piperag_s3" else ""
        keys = row(line["dataset"], KINDS[line["system"]], nprobe=nprobe)
        cells += [Cell(keys, q, Measure(note=OTHER), float(line[q])) for q in quantities if line[q]]
    return cells


def logged(*, swept: bool) -> list[Cell]:
    """The perplexities of the logs that vary interval or nprobe, or of those that vary neither."""
    cells = []
    for line in read_csv("piperag_perplexity_from_logs"):
        if swept != any(name in line["log"] for name in ("_interval_", "_nprobe_")):
            continue
        kind = (
            "no_retrieval"
            if line["no_retrieval"] == "1"
            else "piperag"
            if line["staleness"] == "1"
            else "retro"
        )
        database = line["config_set"].partition("_eval_")[2].removesuffix(".json")
        dataset = "wikipedia" if line["config_set"].startswith("wikipedia") else "realnews"
        interval, nprobe = (
            int(line[k]) if line[k].isdigit() else "" for k in ("retrieval_interval", "nprobe")
        )
        retrieval = (
            {"interval": interval, "options": _options(line)} if kind != "no_retrieval" else {}
        )
        keys = row(
            dataset, kind, nprobe=nprobe, index=IndexName(database) if database else "", **retrieval
        )
        cells.append(Cell(keys, "perplexity", Measure(note=LOGGED), float(line["perplexity"])))
    return cells


def _options(line: Mapping[str, str]) -> str:
    chunks = int(line["num_continuation_chunks"])
    parts = (
        [] if chunks == 1 else [f"{chunks} chunks of continuation" if chunks else "no continuation"]
    )
    if line["staleness"] == "1":
        parts.append(
            "stale context dropped" if line["remove_stale_context"] == "1" else "stale context kept"
        )
    return ", ".join(parts)


def best_speedups(
    runs: Runs, group: Sequence[System], baseline: str, shared: set[Text]
) -> Iterator[Cell]:
    """For each index the largest speedup over the baseline at equal or lower perplexity."""
    for keys, pairs in _by_index(runs, group, baseline, shared):
        fitting = [pair for pair in pairs if pair[1][1] <= pair[0][1]]
        best = max(fitting, key=lambda pair: pair[0][2] / pair[1][2], default=None)
        measure = (
            noted(sequences.speedup(runs, best[0][0], best[1][0]), _named(best))
            if best
            else _none(pairs)
        )
        yield Cell(keys, SPEEDUP, measure)


def best_gains(runs: Runs, group: Sequence[System], shared: set[Text]) -> Iterator[Cell]:
    """For each index how much lower PipeRAG's perplexity is at most, at equal or lower latency than
    RETRO's.
    """
    for keys, pairs in _by_index(runs, group, "retro", shared):
        fitting = [pair for pair in pairs if pair[1][2] <= pair[0][2]]
        best = max(fitting, key=lambda pair: pair[0][1] - pair[1][1], default=None)
        measure = Measure(best[0][1] - best[1][1], n=1, note=_named(best)) if best else _none(pairs)
        yield Cell(keys, GAIN, measure)


def printed() -> list[Cell]:
    """Both claims over RETRO as the paper's text has them, in a row of their own: they are of
    another model.
    """
    keys = row("the paper's text", "piperag − retro")
    note = Measure(note=OTHER)
    named = {
        SPEEDUP: "max_speedup_over_retro_at_equal_or_lower_perplexity",
        GAIN: "max_perplexity_reduction_at_equal_latency",
    }
    return [Cell(keys, quantity, note, statement(name)) for quantity, name in named.items()]


def _by_index(
    runs: Runs, group: Sequence[System], baseline: str, shared: set[Text]
) -> Iterator[tuple[dict[str, object], list[Pair]]]:
    """(keys of the row, pairs) of each index that PipeRAG was run on."""
    without_options = plain(group)
    for index in dict.fromkeys(s.index for s in group if s.kind == "piperag"):
        members = [s for s in group if s.index == index]
        keys = {key: members[0].keys[key] for key in ("model", "dataset", "database", "index")}
        known: list[Scored] = []
        for system in (s for s in members if s in without_options):
            quality = sequences.perplexity(runs, system, shared).value
            seconds = sequences.latency(system).value
            known += (
                [(system, quality, seconds)] if quality is not None and seconds is not None else []
            )
        pairs = [
            (a, b) for a in known for b in known if (a[0].kind, b[0].kind) == (baseline, "piperag")
        ]
        yield keys | {"method": f"piperag − {baseline}"}, pairs


def _named(pair: Pair) -> str:
    systems = (f"{s.kind} interval {s.interval} nprobe {s.keys['nprobe']}" for s, *_ in pair)
    return f"the luckiest pair: {', '.join(systems)}"


def _none(pairs: Sequence[Pair]) -> Measure:
    if pairs:
        return Measure(reason="no PipeRAG is at once as good and as fast as the baseline")
    return Measure(
        reason="not run: no baseline and PipeRAG over this index were both scored and timed"
    )
