"""A study's retrieval: the part of the needed passages among the first k.

What this shows: for the ranking that gave questions their passages and for those it was made of,
recall (the share of a question's gold passages among the first k), success (whether any is), mean
reciprocal rank and nDCG of the first ten, as means over the questions with intervals, and
the paired difference of the other rankings' nDCG from the chosen one's. Gold passages contain an
answer and belong to the gold document where the question names it.

Limits: questions that no passage answers are not counted. Without a gold document, a passage that
contains the answer's words is taken to answer the question.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Lines, Panel, TableRow, lines
from ragauge.report.figures.footer import sentence
from ragauge.report.figures.style import counted
from ragauge.results.cells import Cell, Cells, Keys, Table, frame, join, mean, paired
from ragauge.results.runs import Runs
from ragauge.results.stats import SHARE

KEYS = ("dataset", "retriever", "k")
DEPTHS = (1, 2, 5, 10, 20, 50, 100)
FIRST = 10  # ranks that MRR and nDCG count, as BEIR and MS MARCO do

READS = Reads(retrieval=True)


def table(runs: Runs) -> Table:
    return frame(KEYS, _cells(runs))


def draw(table: Table) -> Figure:
    def names(row: TableRow) -> str:
        return {"bm25": "BM25"}.get(row.keys["retriever"], str(row.keys["retriever"]))

    panels = list[Panel]()
    for quantity in ("recall", "success"):
        share = Axis(f"{quantity}@k", from_zero=True)
        plot = Lines("k", Axis("passages (k)", "base2"), quantity, share, names)
        panels += plot.panels(plot.points(table.assign(model="")))
    nothing = "Nothing to draw: no passage of the corpus answers any question, as far as is known."
    return lines.draw(panels, columns=2, height_in=2.5, nothing=nothing)


def footer(runs: Runs, table: Table) -> str:
    """Describe the search, and the documents that were not read."""
    lists = []
    for retrieval in runs.retrievals:
        cut = "; ".join(retrieval.get("budget", {}).get("left_out", ()))
        left_out = [f"Left out to fit the budget: {cut}"] if cut else []
        lists += [[*_searched(retrieval)], [*_written(retrieval)], left_out]
    return " ".join(sentence(*parts) for parts in lists if any(parts)) or "Nothing measured yet."


def _searched(retrieval: Keys) -> Iterator[str]:
    corpus = retrieval["corpus"]
    how = retrieval["retrieval"]
    repeated = [corpus[f"near_duplicate_{unit}"] for unit in ("documents", "passages")]
    dropped = ", left out of the search" if corpus["dropped_passages"] else ""
    yield f"Measured on {retrieval['dataset']}: {counted(len(retrieval['questions']), 'question')}"
    yield f"{counted(corpus['documents'], 'document')} ({counted(repeated[0], 'near-duplicate')})"
    yield f"{counted(corpus['passages'], 'passage')} ({counted(repeated[1], 'near-duplicate')}{dropped})"
    yield f"{counted(len(retrieval['skipped']), 'file')} skipped" if retrieval["skipped"] else ""
    if pages := retrieval.get("left_out", {}).values():
        yield f"{counted(len(pages), 'web page')} read without {sum(pages) / len(pages):.0%} of their characters"
    yield f"encoder: {how['encoder']}" if "dense" in retrieval["questions"][0]["ranks"] else ""
    yield f"reranker: {how['reranker']}" if how["reranker"] else ""
    seconds = ", ".join(f"{name} {s:.3g}" for name, s in how.get("seconds", {}).items())
    yield f"seconds for all questions: {seconds}" if seconds else ""
    yield "intervals: 95%"


def _written(retrieval: Keys) -> Iterator[str]:
    """Describe questions that a model wrote: which one, and how many were left out."""
    if written := retrieval.get("generation"):
        few = f" of {written['wanted']} asked for" if written["kept"] < written["wanted"] else ""
        tried = counted(written["attempts"], "attempt")
        reasons = written["left_out"].items()
        yield f"Questions written by {written['writer']} in {tried}: {written['kept']} kept{few}"
        left = ", ".join(
            f"{count} {reason.replace('_', ' ')}" for reason, count in reasons if count
        )
        yield f"left out: {left or 'none'}"
        yield f"kept is what {written['reader']} answers with the passage and not without it"


def _cells(runs: Runs) -> Cells:
    for retrieval in runs.retrievals:
        keys = {"dataset": retrieval["dataset"]}
        how = retrieval["retrieval"]
        questions = [question for question in retrieval["questions"] if question["gold"]]
        note = _basis(retrieval["questions"], questions)
        depths = sorted({*(k for k in DEPTHS if k <= how["depth"]), min(how["top"], how["depth"])})
        places = [*product(("recall", "success"), depths), ("mrr", FIRST), ("ndcg", FIRST)]
        for name in sorted(
            retrieval["questions"][0]["ranks"], key=lambda name: name != how["chosen"]
        ):
            chosen = "gave the questions their passages" if name == how["chosen"] else ""
            for quantity, k in places:
                values = [MEASURES[quantity](q["ranks"][name], q["gold"], k) for q in questions]
                measure = mean(values, runs.seed, join(chosen, note), limits=SHARE)
                yield Cell({**keys, "retriever": name, "k": k}, quantity, measure)
        # how much the nDCG of others is above the chosen one's
        for name in questions[0]["ranks"] if questions else ():
            if name != how["chosen"]:
                a, b = (
                    [ndcg(q["ranks"][retriever], q["gold"], FIRST) for q in questions]
                    for retriever in (name, how["chosen"])
                )
                measure = paired(a, b, runs.seed, f"less {how['chosen']}", limits=SHARE)
                yield Cell({**keys, "retriever": name, "k": FIRST}, "ndcg_difference", measure)


def _basis(questions: Sequence[Keys], answerable: Sequence[Keys]) -> str:
    stated = sum(q["known_by"] == "document" for q in answerable)
    without = len(questions) - len(answerable)
    gold = f"gold document stated for {stated} of {len(answerable)}"
    cut = f"{without} of {counted(len(questions), 'question')} not counted: no passage answers them"
    return join(
        gold if stated else "gold are all passages that hold an answer", cut if without else ""
    )


# Of one question: `ranks`, from 1, of its gold passages that were found; `gold`, how many there
# are, at least one; and `k`, how many of the first passages count.


def recall(ranks: Sequence[int], gold: int, k: int) -> float:
    """The share of a question's gold passages that are among the first k."""
    return sum(rank <= k for rank in ranks) / gold


def success(ranks: Sequence[int], gold: int, k: int) -> float:
    """1.0 if a gold passage is among the first k, else 0.0: what open-domain question answering
    calls recall.
    """
    return float(any(rank <= k for rank in ranks))


def reciprocal_rank(ranks: Sequence[int], gold: int, k: int) -> float:
    """1 / rank of the first gold passage; 0.0 if there is none among the first k."""
    first = min(ranks, default=math.inf)
    return 1 / first if first <= k else 0.0


def ndcg(ranks: Sequence[int], gold: int, k: int) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin and Kekäläinen, 2002),
    discount log2(rank + 1).
    """
    gained = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= k)
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(gold, k) + 1))


MEASURES = {"recall": recall, "success": success, "mrr": reciprocal_rank, "ndcg": ndcg}
