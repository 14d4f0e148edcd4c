"""Time methods side by side by the latency protocol."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options
from ragauge.verbs import _timing

OPTIONS = {"trials", "warmup", "documents", "tokens"}  # keys of the section `latency` that are options as they are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import LatencySettings

    options.add_measured(parser)
    parser.add_argument(
        "--random-weights",
        action="store_true",
        help="random weights of the model's shape, on random tokens; --dataset then names token counts",
    )
    options.add_settings(parser, LatencySettings, set(LatencySettings.model_fields) - OPTIONS)
    parser.add_argument(
        "--new-tokens", type=options.counts, metavar="N,...", help="tokens generated in a trial, one run per number (5)"
    )
    parser.add_argument(
        "--prompts", type=options.count, default=3, metavar="N", help="prompts over which the trials are divided (3)"
    )
    parser.add_argument(
        "--machine",
        type=Path,
        metavar="FILE.json",
        help="file written by `ragauge doctor machine`; default: measure now",
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import gap, machine
    from ragauge.cost.settings import LatencySettings
    from ragauge.evaluation import latency, timing

    config = options.configuration(args)
    changes = _timing.given(args, LatencySettings, {"new_tokens", "allow_load"})
    changes |= {"allow_load": True} if args.allow_load else {}
    changes |= {"new_tokens": args.new_tokens[0], "more_new_tokens": args.new_tokens[1:]} if args.new_tokens else {}
    configured = config and (config.protocol(args.dataset) or options.first(*config.protocols))
    measurement = _timing.read(args, config, LatencySettings, configured, changes)
    settings, model, longest = measurement.settings, measurement.model, max(measurement.settings.all_new_tokens)
    if measurement.questions is None:
        bench = timing.bench_of_shape(args.dataset, model, longest, settings.threads)
    elif settings.tokens:
        bench = timing.bench_of_random_tokens(settings.tokens, measurement.questions.name, model, settings.threads)
    else:
        bench = timing.bench_of_questions(measurement.questions, args.prompts, model, longest, settings.threads)
    rates = machine.read(args.machine) if args.machine else None
    result = latency.measure_latency(measurement.variants, bench, settings, machine=rates, folder=args.out.parent)
    lengths = (result, *result["other_lengths"])
    _timing.tell(args, result, lengths, "\n".join(map(gap.table, lengths)))
