"""The cost of generation with retrieval to a decoder, in multiply-accumulates (MACs), from sizes
alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ragauge.cost.flop import FLOP_PER_MAC, call_macs
from ragauge.cost.roofline import MachineRates
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.pipelines.indexes.ivf_pq import IvfPq
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.sizes import Sizes
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR, Windows


def calls(entry: PipelineSettings) -> Iterator[Call]:
    """Yield the decoder's calls on one sequence, those of joint attention's neighbours before what
    attends to them.
    """
    window = -1
    attended = 0
    reads_at = entry.schedule_class.reads_at
    encodes_anew = entry.encoding == "every_window"
    for start, stop, now in Windows(entry.interval).pieces(0, entry.tokens):
        if now > window and (reads_at(now) or encodes_anew):
            attended = entry.neighbours * NEIGHBOUR
            yield Call(
                "neighbours",
                (NEIGHBOUR,) * entry.neighbours,
                (1,) * entry.neighbours,
                parallel=True,
            )
        window = now
        # after the prompt a generation writes
        read_end = stop if entry.task == "perplexity" else min(stop, CHUNK)
        if start < read_end:
            yield Call("read", (read_end - start,), (start + attended,), logits=(read_end - start,))
        written = max(start, read_end)
        if written < stop:
            yield Call("decode", (1,), (written + attended,), logits=(1,), steps=stop - written)


def retrievals(entry: PipelineSettings) -> int:
    """Count the retrievals of one sequence."""
    once = entry.model_copy(update={"encoding": "once"})
    return sum(call.stage == "neighbours" for call in calls(once))


def retro_calls(entry: PipelineSettings, sizes: Sizes) -> Iterator[Call]:
    """Yield the same calls of RETRO, with MACs; the query's last token is read alone, as the
    encoder sees none after it.
    """
    attended = 0
    alone = False
    for call in calls(entry):
        if call.stage == "neighbours":
            attended = sum(call.lengths)
            alone = True
            yield replace(call, macs=neighbour_macs(sizes, call.lengths))
            continue
        new = call.lengths[0]
        past = call.past[0] - attended
        for part in (1, new - 1) if alone and call.stage == "read" and new > 1 else (new,):
            macs = token_macs(sizes, part, past, attended, call.steps)
            yield replace(call, lengths=(part,), past=(past,), logits=(part,), macs=macs)
            past += part
        alone = False


def token_macs(sizes: Sizes, new: int, past: int, attended: int = 0, steps: int = 1) -> int:
    """MACs of RETRO's decoder for `new` tokens a step, of which step s has `past + s * new` behind
    it. `attended` counts tokens of encoded neighbours; with none, cross-attention is left out.
    """
    # weights of self-attention and the gated MLP
    layer = 4 * sizes.width**2 + 3 * sizes.width * sizes.ffn
    weights = sizes.layers * layer + sizes.width * sizes.vocab
    pairs = new * (steps * (past + new) + new * (steps * (steps - 1) // 2))
    crossed = new * steps * len(sizes.cross) if attended else 0
    # query and output, scores and mixing
    across = crossed * (2 * sizes.width**2 + 2 * attended * sizes.width)
    return new * steps * weights + 2 * pairs * sizes.width * sizes.layers + across


def neighbour_macs(sizes: Sizes, lengths: tuple[int, ...]) -> int:
    """MACs of encoding neighbours of these lengths, given a query's states, and of their keys in
    the decoder.
    """
    width = sizes.encoder_width
    cross = len(sizes.encoder_cross)
    tokens = sum(lengths)
    layer = 4 * width**2 + 3 * width * sizes.encoder_ffn
    self_macs = sizes.encoder_layers * (
        tokens * layer + 2 * width * sum(length**2 for length in lengths)
    )
    batches = len(set(lengths))  # neighbours of one length share the keys of the query's states
    states = cross * (
        batches * 2 * CHUNK * sizes.width * width + tokens * (2 * width**2 + 2 * CHUNK * width)
    )
    return self_macs + states + len(sizes.cross) * 2 * tokens * width * sizes.width


def report(entry: PipelineSettings, decoder: Shape | Sizes) -> dict[str, Any]:
    """Operations of one sequence by stage, and how many times those without retrieval."""
    plain = entry.model_copy(update={"schedule": "no_retrieval", "interval": CHUNK})
    stages = _flop(entry, decoder)
    return {
        **{
            key: getattr(entry, key)
            for key in ("schedule", "task", "interval", "neighbours", "tokens")
        },
        "retrievals": retrievals(entry),
        "flop": stages.total(),
        "flop_by_stage": dict(stages),
        "over_no_retrieval": stages.total() / _flop(plain, decoder).total(),
    }


def search_floor(
    entry: PipelineSettings, recipe: IvfPq, vectors: int, width: int, server: MachineRates
) -> dict[str, Any]:
    """Least seconds of a pipeline's searches on a server: the centroids and nprobe lists once, at
    its read rate. Compute is not counted.

    Raises:
        UserError: nprobe is no number.
    """
    nprobe = recipe.default_nprobe if entry.nprobe is None else entry.nprobe
    if not isinstance(nprobe, int):
        raise UserError(f"nprobe: must be a number to predict a search, not {nprobe!r}")
    index_bytes = 4 * width * recipe.nlist + vectors * recipe.vector_bytes(width)
    search_bytes = (
        4 * width * recipe.nlist + vectors * recipe.vector_bytes(width) * nprobe / recipe.nlist
    )
    seconds = search_bytes / server["bandwidth_bytes_per_s"]["high"] + server["round_trip_s"]
    return {
        "server": server["name"],
        "index_bytes": index_bytes,
        "fits_memory": index_bytes <= server["memory_bytes"],
        "nprobe": nprobe,
        "retrieval_at_least_s": seconds,
        "retrievals_at_least_s": seconds * retrievals(entry),
    }


def _flop(entry: PipelineSettings, decoder: Shape | Sizes) -> Counter[str]:
    stages: Counter[str] = Counter()
    for call in retro_calls(entry, decoder) if isinstance(decoder, Sizes) else calls(entry):
        macs = call.macs if isinstance(decoder, Sizes) else call_macs(call, decoder)
        stages[call.stage] += FLOP_PER_MAC * (macs or 0)
    return stages
