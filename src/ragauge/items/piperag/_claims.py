"""The claims of PipeRAG's text, over all pairs of a baseline and a PipeRAG that were both scored and timed."""

from collections.abc import Iterator, Sequence

from ragauge.items.piperag import _published
from ragauge.results import Cell, Measure, Runs, noted, sequences
from ragauge.results.pipelines import Text
from ragauge.results.systems import System, plain

SPEEDUP, GAIN = "speedup_at_no_higher_perplexity", "perplexity_gain_at_no_higher_latency"
Scored = tuple[System, float, float]  # a system, its perplexity and its median seconds
Pair = tuple[Scored, Scored]  # a baseline, a PipeRAG


def best_speedups(runs: Runs, group: Sequence[System], baseline: str, shared: set[Text]) -> Iterator[Cell]:
    """For each index the largest speedup over the baseline at equal or lower perplexity."""
    for keys, pairs in _by_index(runs, group, baseline, shared):
        fitting = [pair for pair in pairs if pair[1][1] <= pair[0][1]]
        best = max(fitting, key=lambda pair: pair[0][2] / pair[1][2], default=None)
        measure = noted(sequences.speedup(runs, best[0][0], best[1][0]), _named(best)) if best else _none(pairs)
        yield Cell(keys, SPEEDUP, measure)


def best_gains(runs: Runs, group: Sequence[System], shared: set[Text]) -> Iterator[Cell]:
    """For each index how much lower PipeRAG's perplexity is at most, at equal or lower latency than RETRO's."""
    for keys, pairs in _by_index(runs, group, "retro", shared):
        fitting = [pair for pair in pairs if pair[1][2] <= pair[0][2]]
        best = max(fitting, key=lambda pair: pair[0][1] - pair[1][1], default=None)
        measure = Measure(best[0][1] - best[1][1], n=1, note=_named(best)) if best else _none(pairs)
        yield Cell(keys, GAIN, measure)


def printed() -> list[Cell]:
    """Both claims over RETRO as the paper's text has them, in a row of their own: they are of another model."""
    keys, note = _published.row("the paper's text", "piperag − retro"), Measure(note=_published.OTHER)
    named = {
        SPEEDUP: "max_speedup_over_retro_at_equal_or_lower_perplexity",
        GAIN: "max_perplexity_reduction_at_equal_latency",
    }
    return [Cell(keys, quantity, note, _published.statement(name)) for quantity, name in named.items()]


def _by_index(
    runs: Runs, group: Sequence[System], baseline: str, shared: set[Text]
) -> Iterator[tuple[dict[str, object], list[Pair]]]:
    """(keys of the row, pairs) of each index that PipeRAG was run on."""
    without_options = plain(group)
    for index in dict.fromkeys(s.index for s in group if s.kind == "piperag"):
        members = [s for s in group if s.index == index]
        keys = {key: members[0].keys[key] for key in ("model", "dataset", "index")}
        known: list[Scored] = []
        for system in (s for s in members if s in without_options):
            quality, seconds = sequences.perplexity(runs, system, shared).value, sequences.latency(system).value
            known += [(system, quality, seconds)] if quality is not None and seconds is not None else []
        pairs = [(a, b) for a in known for b in known if (a[0].kind, b[0].kind) == (baseline, "piperag")]
        yield keys | {"method": f"piperag − {baseline}"}, pairs


def _named(pair: Pair) -> str:
    systems = (f"{s.kind} interval {s.interval} nprobe {s.keys['nprobe']}" for s, *_ in pair)
    return f"the luckiest pair: {', '.join(systems)}"


def _none(pairs: Sequence[Pair]) -> Measure:
    if pairs:
        return Measure(reason="no PipeRAG is at once as good and as fast as the baseline")
    return Measure(reason="not run: no baseline and PipeRAG over this index were both scored and timed")
