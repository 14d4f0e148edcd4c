"""`ragauge piperag staleness`: compare the neighbours of stale and of fresh queries (PipeRAG, Table 2)."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.errors import UserError
from ragauge.retrieval.settings import StalenessSettings

NO_OPTIONS = ("database",)  # keys that are options of another meaning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_config(parser, "a configuration: all settings are those of --entry in its section `staleness`")
    options.add_entry(parser, "staleness")
    options.add_database(parser, "the chunk database, with its held-out text")
    options.add_settings(parser, StalenessSettings, NO_OPTIONS)
    options.add_threads(parser, "threads of the encoder and of a search; default: the libraries' own choice")
    add("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    """Write one JSON file: the settings of the comparison, and each query's cosines."""
    from dataclasses import asdict

    from ragauge.config import loading
    from ragauge.config.reading import checked_options

    if args.config:
        entries, where = loading.load(args.config).staleness, f"{args.config}: staleness"
        settings: StalenessSettings = options.entry(entries, args.entry, "comparison", where)
    else:
        stated = options.given(args, StalenessSettings, NO_OPTIONS)
        settings = checked_options(StalenessSettings, {"database": args.database.name, **stated})
    from ragauge.cost.machine import provenance
    from ragauge.generation.evaluation import texts
    from ragauge.io import resumed
    from ragauge.io.digest import digest
    from ragauge.io.files import text_sha256
    from ragauge.retrieval.embed import Embeddings, EncoderChoice
    from ragauge.retrieval.retriever import Retriever
    from ragauge.retrieval.staleness import Comparison

    made, threads = Embeddings(args.database, 0).manifest, args.threads
    searched = {"encoder": made["encoder"], "engine": made["engine"]}  # that the vectors of the index were made with
    retriever = Retriever.open(args.database, settings.index, **searched, threads=threads)
    choice = EncoderChoice(settings.encoder, settings.engine, threads)
    comparison = Comparison(retriever, retriever.database, choice.load(), settings.nprobe)
    own = settings.evaluation in (None, settings.database)
    read = texts(retriever.database, settings.tokens, settings.limit, None if own else settings.evaluation)
    saved = args.out.with_name(f".{args.out.name}.texts")
    made_from = retriever.index.sha256, choice.sha256, settings.nprobe, digest("ragauge.retrieval.staleness")
    compared = resumed.results(
        saved,
        text_sha256(*made_from, [text.key for text in read]),
        read,
        lambda text: [asdict(one) for one in comparison.compare(text.key, text.ids)],
        settings.minutes,
    )
    comparisons = [one for text in compared for one in text]
    if not comparisons:
        longest = max(comparison.stale_tokens) + retriever.database.chunk_tokens
        raise UserError(f"--tokens: {settings.tokens} are too few for the stalest query; it needs at least {longest}")
    recipe = retriever.index.recipe
    report = {
        **settings.model_dump(include={"encoder", "database", "index", "evaluation", "tokens"}),
        "encoder_sha256": choice.sha256,
        "nprobe": settings.nprobe or recipe.default_nprobe,
        "filled": recipe.filled,
        "texts": len(compared),
        "stale_tokens": comparison.stale_tokens,
        "provenance": provenance(),
    }
    options.write_json(args.out, {**report, "queries": comparisons})
    if len(compared) == len(read):
        saved.unlink()
    options.print_result(args, args.out, out=args.out)
