"""Skip decoding (CFIC, eq. 7): where a piece of evidence ends, without generating it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Row, SpanEngine
from ragauge.evidence.prefix import EvidenceContext, Prefix
from ragauge.evidence.sentences import Sentence
from ragauge.evidence.writing import write

if TYPE_CHECKING:
    from torch import Tensor

Range = tuple[int, int]
"""The first and the last sentence of a stretch, both in it."""


def within(prefix: Prefix, sentences: Sequence[Sentence], d: int) -> list[int]:
    """The sentences with which evidence that begins with this prefix may end.

    Those of the same source that end within `d` tokens after the prefix, and always the prefix's own.
    """
    own = sentences[prefix.sentence]
    ends = [prefix.sentence]
    for index in range(prefix.sentence + 1, len(sentences)):
        sentence = sentences[index]
        if sentence.source != own.source or sentence.end > own.first + prefix.tokens + d:
            break
        ends.append(index)
    return ends


def decode(
    engine: SpanEngine,
    context: EvidenceContext,
    ids: Sequence[int],
    sentences: Sequence[Sentence],
    prefixes: Sequence[Prefix],
    d: int,
) -> list[Range]:
    """The stretch of each prefix, up to the sentence after which the model is most likely to stop (eq. 7).

    The document's tokens after every prefix are read in one pass over the one cache, nothing of which is copied; a
    prefix with a single possible end needs none. Ties go to the shorter stretch.

    Args:
        ids: the tokens of the document that the sentences' spans count in.
    """
    ends = {prefix: within(prefix, sentences, d) for prefix in prefixes}
    open_ones = [prefix for prefix in prefixes if len(ends[prefix]) > 1]
    chosen = {prefix: ends[prefix][0] for prefix in prefixes}
    if open_ones:
        rows = [_row(context, prefix, ids, sentences, ends[prefix][-1]) for prefix in open_ones]
        starts = [sentences[prefix.sentence].first + len(prefix.read) for prefix in open_ones]
        places = [
            [sentences[i].end - 1 - start for i in ends[prefix]]
            for prefix, start in zip(open_ones, starts, strict=True)
        ]
        read = engine.extend(context.cache, rows, stage="skip", parallel=True, logits_at=places, tree=True)
        for prefix, logits in zip(open_ones, read.logits, strict=True):
            chosen[prefix] = ends[prefix][int(eos_logp(logits, engine.shape.eos).argmax())]
    return [(prefix.sentence, chosen[prefix]) for prefix in prefixes]


def write_on(
    engine: SpanEngine, context: EvidenceContext, prefixes: Sequence[Prefix], begins: Sequence[Sequence[int]], d: int
) -> list[list[int]]:
    """The ablation without skip decoding: each prefix and what the model writes after it, greedily, side by side.

    Args:
        begins: token ids of each prefix.
        d: tokens of a prefix and its continuation at most, as in skip decoding.
    """
    rows = []
    for prefix, ids in zip(prefixes, begins, strict=True):
        done = len(prefix.read)
        positions = [context.position + done + j for j in range(len(ids) - done)]
        rows.append(Row(ids[done:], positions, (context.span, *prefix.read)))
    most = [max(0, d - len(ids)) for ids in begins]
    stop = frozenset(engine.shape.eos)
    more = write(engine, context.cache, rows, most=most, ended=stop.__contains__, stage="skip", tree=True)
    return [[*ids, *new] for ids, new in zip(begins, more, strict=True)]


def eos_logp(logits: Tensor, eos: Sequence[int]) -> Tensor:
    """log P(the response ends here) at each place: (place, vocab) -> (place,), fp32."""
    logp = logits.float().log_softmax(-1)
    return logp[:, list(eos)].logsumexp(-1)


def merge(ranges: Iterable[Range], sentences: Sequence[Sentence]) -> list[Range]:
    """In document order, stretches that overlap or follow on each other without a gap made one."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        before = merged[-1] if merged else None
        if before and first <= before[1] + 1 and sentences[first].source == sentences[before[1]].source:
            merged[-1] = (before[0], max(before[1], last))
        else:
            merged.append((first, last))
    return merged


def _row(context: EvidenceContext, prefix: Prefix, ids: Sequence[int], sentences: Sequence[Sentence], last: int) -> Row:
    """The document from the prefix on, less what of it has been read, up to the end of sentence `last`."""
    done = len(prefix.read)
    new = ids[sentences[prefix.sentence].first + done : sentences[last].end]
    return Row(new, [context.position + done + j for j in range(len(new))], (context.span, *prefix.read))
