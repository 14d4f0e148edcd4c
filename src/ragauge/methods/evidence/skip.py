"""Skip decoding (CFIC, eq. 7): where a piece of evidence ends, without generating it."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from ragauge.engines.protocol import Row, SpanEngine
from ragauge.methods.base.method import unit_row
from ragauge.methods.evidence.prefix import EvidenceContext, Prefix
from ragauge.methods.evidence.sentences import Sentence
from ragauge.methods.evidence.writing import write

Range = tuple[int, int]
"""The first and the last sentence of a stretch, both in it."""


def within(prefix: Prefix, sentences: Sequence[Sentence], d: int) -> list[int]:
    """Return the sentences with which evidence that begins with this prefix may end: those of the
    same source that end within `d` tokens after the prefix, and always the prefix's own.
    """
    own = sentences[prefix.sentence]
    limit = own.first + prefix.tokens + d
    later = range(prefix.sentence + 1, len(sentences))
    ends = takewhile(
        lambda i: sentences[i].source == own.source and sentences[i].end <= limit, later
    )
    return [prefix.sentence, *ends]


def decode(
    engine: SpanEngine,
    context: EvidenceContext,
    ids: Sequence[int],
    sentences: Sequence[Sentence],
    prefixes: Sequence[Prefix],
    d: int,
) -> list[Range]:
    """Return the stretch of each prefix, up to the sentence after which the model is most likely to
    stop (eq. 7).

    The document's tokens after every prefix are read in one pass over the one cache, nothing of
    which is copied; a prefix with a single possible end needs none. Ties go to the shorter stretch.

    Args:
        ids: the tokens of the document that the sentences' spans count in.
    """
    ends = [within(prefix, sentences, d) for prefix in prefixes]
    chosen = [first for first, *_ in ends]
    rows = {}
    places = []
    for i, (prefix, possible) in enumerate(zip(prefixes, ends, strict=True)):
        if len(possible) > 1:
            start = sentences[prefix.sentence].first
            rows[i] = _row(context, prefix, ids[start : sentences[possible[-1]].end])
            places.append([sentences[end].end - 1 - start - len(prefix.read) for end in possible])
    if rows:
        new = list(rows.values())
        read = engine.extend(
            context.cache, new, stage="skip", parallel=True, logits_at=places, tree=True
        )
        for i, logits in zip(rows, read.logits, strict=True):
            # that it ends: (place,)
            eos_logp = logits.float().log_softmax(-1)[:, list(engine.shape.eos)].logsumexp(-1)
            chosen[i] = ends[i][int(eos_logp.argmax())]
    return [(prefix.sentence, last) for prefix, last in zip(prefixes, chosen, strict=True)]


def write_on(
    engine: SpanEngine,
    context: EvidenceContext,
    prefixes: Sequence[Prefix],
    begins: Sequence[Sequence[int]],
    d: int,
) -> list[list[int]]:
    """Write on greedily after each prefix, side by side (the ablation without skip decoding).

    Args:
        begins: the prefixes' token ids.
        d: tokens of a prefix and what is written after it, at most.
    """
    rows = [_row(context, prefix, ids) for prefix, ids in zip(prefixes, begins, strict=True)]
    most = [max(0, d - len(ids)) for ids in begins]
    more = write(engine, context.cache, rows, most=most, stage="skip")
    return [[*ids, *new] for ids, new in zip(begins, more, strict=True)]


def merge(ranges: Iterable[Range], sentences: Sequence[Sentence]) -> list[Range]:
    """In document order, stretches that overlap or follow on each other without a gap made one."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        before = merged[-1] if merged else None
        if (
            before
            and first <= before[1] + 1
            and sentences[first].source == sentences[before[1]].source
        ):
            merged[-1] = (before[0], max(before[1], last))
        else:
            merged.append((first, last))
    return merged


def _row(context: EvidenceContext, prefix: Prefix, ids: Sequence[int]) -> Row:
    """Return the tokens from a prefix's first on, less those that the search has read."""
    count = len(prefix.read)
    return unit_row(ids[count:], context.position + count, (context.span, *prefix.read))
