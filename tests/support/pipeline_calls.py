"""The calls that a pipeline makes on a decoder, from its settings alone."""

from ragauge.cost.trace import Call
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR, Windows


def calls(entry):
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
