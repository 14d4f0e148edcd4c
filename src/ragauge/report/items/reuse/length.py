"""Methods that reuse keys and values over the length and the number of documents.

What this shows: for each variant on the same questions with documents of several lengths or numbers
(a data set's options `documents` and `joined`), the difference of the primary metric to the plain
prompt on the same questions, with its paired 95% interval, and the speedup to the first token, both in one
`state` of what was read before the question (docs/protocols.md).
`document_tokens` is the median length of a document, `documents` their median number. On the left
documents are longer with the same text in all; on the right there are more of the same length.

Limits: not the effect of length alone, since longer documents are joined from neighbours and fewer.
Where the plain prompt is hardly ever right, differences mean nothing, and note and figure say so.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Lines, Panel, lines
from ragauge.report.items.reuse._family import (
    AT_FLOOR,
    RANKERS,
    VariantSeconds,
    answers,
    belongs,
    floor,
)
from ragauge.results.cells import Cell, Cells, Table, frame, noted
from ragauge.results.measures import REFERENCES, difference, quality
from ragauge.results.runs import Runs, Variant
from ragauge.results.times import STATE_WORDS

KEYS = (
    "model",
    "questions",
    "dataset",
    "state",
    "method",
    "variant",
    "documents",
    "document_tokens",
    "text_tokens",
)
DRAWN = {
    "difference": Axis("difference to the plain prompt", is_difference=True),
    "first_token_speedup": Axis("speedup to first token", "log"),
}
ALIKE = 0.15  # relative difference up to which lengths, and amounts of text, count as the same

READS = Reads(answers=answers(*REFERENCES, *RANKERS), latency="any")


def table(runs: Runs) -> Table:
    families = defaultdict[tuple[str, str], list[Variant]](list)
    for group in runs.groups():
        families[group.model, runs.registered(group.dataset)] += group.find("naive")[:1]
    cells = (_family(name, bases) for (_, name), bases in families.items())
    return frame(KEYS, chain.from_iterable(cells))


def draw(table: Table) -> Figure:
    """Four panels a model and set of questions: both quantities over length, and over number; a
    variant a method.
    """
    named = table.assign(read=table["state"].map(STATE_WORDS))
    groups = list(named.groupby(["model", "questions", "read"], sort=False))
    several = [
        group
        for group in groups
        if len(group[1][["documents", "document_tokens"]].drop_duplicates()) > 1
    ]
    panels = [
        panel
        for key, part in several or groups
        for panel in _panels(" · ".join(map(str, key)), part)
    ]
    return lines.draw(
        panels, columns=2, nothing="Nothing to draw yet: no method was run with the plain prompt."
    )


def _panels(title: str, part: Table) -> Iterator[Panel]:
    """Over length the data sets with the most text, over number those with the shortest documents."""
    of_methods = (
        variants.groupby("variant", sort=False)["dataset"] for _, variants in part.groupby("method")
    )
    # the first on the most data sets
    chosen = [datasets.nunique().idxmax() for datasets in of_methods]
    text = part["text_tokens"].astype(float)
    tokens = part["document_tokens"].astype(float)
    shown = part[part["variant"].isin(chosen)]
    same = {
        "document_tokens": ("tokens of a document", text >= (1 - ALIKE) * text.max()),
        "documents": ("documents", tokens <= (1 + ALIKE) * tokens.min()),
    }
    title += f" ({AT_FLOOR})" if part["note"].str.contains(AT_FLOOR).any() else ""
    for quantity, y in DRAWN.items():
        for x, (label, alike) in same.items():
            plot = Lines(x, Axis(label, "base2"), quantity, y)
            yield Panel(title, plot.x_axis, y, plot.points(shown[alike[shown.index]]))
            title = ""


def _family(name: str, bases: Sequence[Variant]) -> Cells:
    """The cells of a registered data set under the labels that ask the same questions, of one or
    several sizes; `bases` are their plain prompts.
    """
    most = max((set(base.records) for base in bases), key=len, default=set())
    for base in bases:
        size = _size(base)
        if not size or not most & set(base.records):
            continue
        keys = {"questions": name, **size}
        weak = floor(base)
        shown = [v for v in base.group.variants if belongs(v, *REFERENCES, *RANKERS)]
        clock = VariantSeconds.find(base.group, shown)
        state = clock.states[0]
        for variant in shown:
            own = variant.keys | keys | {"state": state}
            yield Cell(own, "quality", noted(quality(variant), weak))
            if variant is not base:
                yield Cell(own, "difference", noted(difference(variant, base), weak))
                yield Cell(own, "first_token_speedup", clock.sooner(base, variant, state))


def _size(variant: Variant) -> dict[str, float]:
    """Medians over the questions: documents, tokens of a document and of all of them; empty where
    no record counts.
    """
    counts = [record.tokens.get("documents") or [] for record in variant.answered.values()]
    lengths = [n for documents in counts for n in documents]
    values = {
        "documents": [*map(len, counts)],
        "document_tokens": lengths,
        "text_tokens": [*map(sum, counts)],
    }
    return {name: statistics.median(numbers) for name, numbers in values.items()} if lengths else {}
