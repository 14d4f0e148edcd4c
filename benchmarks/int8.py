"""What 8 and 4 bits cost in quality: perplexity, logits, answers and the order of methods.

    python benchmarks/int8.py nq-open-20_total_documents_gold_at_0.jsonl.gz wikipedia.txt.gz \\
        [--reference float32] [--settings bfloat16,...] [--questions 20] [--windows 8] [--window 512]
        [--methods closed_book,bm25,oracle] [--threads 1] [--json]

The first file has NQ-Open in its official format, the second a text, plain or .gz. Each setting
reads the same tokens of the text, in windows, and answers the same questions. Differences are
paired by question (`results.stats.paired_test`), and logits are compared position by position.
There are no times, so that it may run on a busy machine.
"""

import argparse
import gzip
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from _common import MODEL, finish, parse_options
from ragauge.config.model import ModelEntry
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm
from ragauge.engines.spans import Row
from ragauge.io import progress
from ragauge.measure.answering import ask
from ragauge.measure.inputs import QuestionSource, specification
from ragauge.methods.base.making import make
from ragauge.metrics import best_subspan_em
from ragauge.results.stats import SHARE, paired_test
from targets import Verdicts

SETTINGS: dict[str, dict[str, str]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "weights int8": {"dtype": "float32", "weights": "int8"},
    "weights int4": {"dtype": "bfloat16", "weights": "int4"},  # a GGUF file's own blocks
}

Scores = dict[str, list[float]]
"""method -> one score a question."""


def main() -> None:
    args = parse_options(
        __doc__,
        "data",
        "text",
        model=MODEL,
        questions=(20, "answered in each setting"),
        methods=(["closed_book", "bm25", "oracle"], "methods that answer"),
        settings=([name for name in SETTINGS if name != "weights int4"], "of the decoder"),
        reference=("float32", "the setting that the others are compared with"),
        max_new_tokens=(100, "of an answer"),
        windows=(8, "read of the text"),
        window=(512, "tokens of a window"),
        threads=(1, "of the decoder"),
    )
    lms = {
        name: load_lm(args.model, threads=args.threads, **SETTINGS[name])
        for name in dict.fromkeys([args.reference, *args.settings])
    }
    text = _read(lms, args)
    answers = _answers(lms, args)
    result: dict[str, Any] = {
        "model": args.model,
        "reference": args.reference,
        "text": args.text.name,
        "tokens": args.windows * args.window,
        "data": args.data.name,
        "questions": args.questions,
        "max_new_tokens": args.max_new_tokens,
        "settings": {name: {**text[name], **answers[name]} for name in lms},
    }
    print(_table(result, args.methods))
    finish(result, Verdicts(), args.json)


# --- a text ---


def _read(lms: Mapping[str, LM], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Of each setting: `perplexity`, `logits_error` (|difference| / |reference|, root mean square over positions) and
    `same_token`, the share of positions whose likeliest next token is the reference's."""
    opened = gzip.open if args.text.suffix == ".gz" else open
    with opened(args.text, "rt", encoding="utf-8") as file:
        ids = next(iter(lms.values())).tokenizer(file.read(20 * args.windows * args.window))[
            "input_ids"
        ]
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in lms}
    starts = range(0, args.windows * args.window, args.window)
    for start in progress.bar("perplexity", "window", iterable=starts):
        window = ids[start : start + args.window]
        exact = _logits(lms[args.reference], window)
        for name, lm in lms.items():
            sums[name] += _compared(
                exact if name == args.reference else _logits(lm, window), exact, window
            )
    positions = args.windows * (args.window - 1)
    return {name: _as_numbers(total / positions) for name, total in sums.items()}


def _as_numbers(mean: torch.Tensor) -> dict[str, float]:
    nll, squared, same = mean.tolist()
    return {"perplexity": math.exp(nll), "logits_error": math.sqrt(squared), "same_token": same}


def _logits(lm: LM, ids: Sequence[int]) -> torch.Tensor:
    """(token, vocab) of all tokens but the last, over keys and values as the cache keeps them."""
    row = Row(ids, [float(i) for i in range(len(ids))])
    read = lm.extend(lm.new_cache(len(ids)), [row], stage="prompt", logits_at=[range(len(ids) - 1)])
    return read.logits[0].float()


def _compared(found: torch.Tensor, exact: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    nll = torch.nn.functional.cross_entropy(found, torch.tensor(ids[1:]), reduction="sum")
    squared = ((found - exact).norm(dim=1) / exact.norm(dim=1)).pow(2).sum()
    same = (found.argmax(1) == exact.argmax(1)).sum()
    return torch.stack([nll, squared, same]).double()


# --- questions ---


def _answers(lms: Mapping[str, LM], args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of each setting: `scores` by method, their paired difference to the reference, and the methods' `order`."""
    questions = QuestionSource("nq_open", {"seed": 0}, args.data)
    examples = questions.examples(args.questions)
    scores: dict[str, Scores] = {name: {method: [] for method in args.methods} for name in lms}
    for method_name in args.methods:
        method = make(method_name)
        stated = specification(
            method, questions, ModelEntry(source=args.model), args.max_new_tokens
        )
        for example in progress.bar(method_name, "question", iterable=examples):
            for name, lm in lms.items():
                record = ask(lm, method, example, stated)
                scores[name][method_name].append(best_subspan_em.score(record.model_dump()) or 0.0)
    return {name: _compared_with(found, scores[args.reference]) for name, found in scores.items()}


def _compared_with(found: Scores, exact: Scores) -> dict[str, Any]:
    means = {method: sum(values) / len(values) for method, values in found.items()}
    pooled = [[score for values in of.values() for score in values] for of in (found, exact)]
    return {
        "scores": means,
        "difference": {
            method: paired_test(values, exact[method], limits=SHARE)
            for method, values in found.items()
        },
        "difference_pooled": paired_test(*pooled, limits=SHARE),
        "order": sorted(means, key=lambda method: -means[method]),
    }


def _table(result: Mapping[str, Any], names: Sequence[str]) -> str:
    head = [
        "setting",
        "perplexity",
        "logits' error",
        "same next token",
        *names,
        "difference (95%)",
        "order of methods",
    ]
    lines = [head, ["---"] * len(head)]
    for name, row in result["settings"].items():
        pooled = row["difference_pooled"]
        lines.append(
            [
                name,
                f"{row['perplexity']:.3f}",
                f"{row['logits_error']:.4f}",
                f"{row['same_token']:.1%}",
                *(f"{row['scores'][method]:.3f}" for method in names),
                f"{pooled['difference']:+.3f} ({pooled['low']:+.3f} to {pooled['high']:+.3f})",
                " > ".join(row["order"]),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
