"""Time methods side by side by the latency protocol."""

import argparse
from pathlib import Path
from typing import Any

from ragauge.cli import _options as options
from ragauge.cli import _timing
from ragauge.config.protocols import LatencySettings
from ragauge.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, LatencySettings, {"new_tokens", "more_new_tokens"})
    add = parser.add_argument
    add(
        "--random-weights",
        action="store_true",
        help=(
            "random weights of the model's shape, on random tokens; --dataset then names token "
            "counts"
        ),
    )
    add(
        "--new-tokens",
        type=options.counts,
        metavar="N,...",
        help="tokens generated in a trial, a run per number (5)",
    )
    add(
        "--machine",
        type=Path,
        metavar="FILE.json",
        help="written by `ragauge doctor machine`; default: measure now",
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import machine
    from ragauge.measure import timing
    from ragauge.measure.protocols import latency, served

    def lengths(stated: dict[str, Any]) -> dict[str, Any]:
        first, *more = stated.get("new_tokens") or [None]
        return stated | ({"new_tokens": first, "more_new_tokens": more} if first else {})

    settings, variants, model, finder, questions, seed = _timing.read(
        args,
        LatencySettings,
        lambda config: config.protocol(args.dataset) or options.first(*config.protocols),
        lengths,
    )
    if settings.answer_tokens == "median":
        config = options.configuration(args)
        median = config and timing.median_answer(config, args.dataset, args.model, list(variants))
        settings = settings.model_copy(update={"answer_tokens": median or None})
    longest = max(settings.all_new_tokens)
    if model.served:
        if (
            questions is None
            or settings.tokens
            or settings.evidence_batch
            or "disk" in settings.states
        ):
            raise UserError(
                f"--model: {args.model} runs behind a server; "
                "--random-weights, --tokens, --evidence-batch and --states disk"
                " need a model that runs here"
            )
        number = settings.prompts
        with _timing.bench(args, settings, model, questions, number, longest) as there:
            result = served.measure_latency(variants, there, settings, seed)
        table = served.latency_table
    else:
        options.server(args, model)  # refuses --serve
        # before the weights are, which take longer
        rates = machine.read(args.machine) if args.machine else None
        if questions is None:
            bench = timing.bench_of_shape(args.dataset, model, longest, settings.threads)
        elif settings.tokens:
            bench = timing.bench_of_random_tokens(
                settings.tokens, questions.name, model, settings.threads
            )
        else:
            batch = settings.evidence_batch or 0
            bench = timing.bench_of_questions(
                questions, settings.prompts, model, longest, settings.threads, batch, finder
            )
        result = latency.measure_latency(
            variants, bench, settings, machine=rates, folder=args.out.parent, seed=seed
        )
        table = latency.table
    runs = (result, *result.other_lengths)
    _timing.write_result(args, result, runs, "\n".join(map(table, runs)))
