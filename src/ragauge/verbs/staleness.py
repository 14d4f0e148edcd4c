"""Compare what stale queries find with what fresh ones find, over held-out text (PipeRAG, Table 2)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.retrieval.retriever import Retriever
    from ragauge.retrieval.staleness import Likeness


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ragauge staleness`."""
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE.yaml", help="take all settings from its entry --label of `staleness`")
    add("--label", help="of --config")
    add("--database", type=Path, required=True, metavar="FOLDER", help="the chunk database, with its held-out text")
    add("--index", default="ivf", metavar="LABEL", help="of the database's indexes (ivf)")
    add("--encoder", default="minilm", help="compares what was found: a name, a source or a folder (minilm)")
    add("--engine", choices=("onnx", "torch"), default="onnx", help="what runs it (onnx)")
    add("--nprobe", type=int, metavar="N", help="effort of a search; default: the index's own")
    add("--tokens", type=int, default=1024, help="of a text (1024)")
    add("--limit", type=int, help="texts; default: all")
    add("--threads", type=int, metavar="N", help="of encoder and search; default: the libraries' own choice")
    add("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    """Write one JSON file: what was compared by what, and each query's cosines."""
    if args.config:
        _configure(args)
    for name in ("nprobe", "limit", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UserError(f"--{name}: must be at least 1, not {value}")
    from ragauge.cost.machine import provenance
    from ragauge.generation.evaluation import texts
    from ragauge.retrieval.embed import EncoderChoice
    from ragauge.retrieval.staleness import Comparison, compare

    retriever = _retriever(args)
    choice = EncoderChoice(args.encoder, args.engine, args.threads)
    comparison = Comparison(retriever, retriever.database, choice.load(), args.nprobe)
    asked = [(text.key, text.ids) for text in texts(retriever.database, args.tokens, args.limit)]
    found = list(compare(comparison, asked))
    if not found:
        longest = max(comparison.stale_tokens) + retriever.database.chunk_tokens
        raise UserError(f"--tokens: {args.tokens} are too few for a query that is so stale; at least {longest}")
    recipe = retriever.index.recipe
    about = {"encoder": args.encoder, "encoder_sha256": choice.sha256, "nprobe": args.nprobe or recipe.effort}
    about |= {"index": args.index, "filled": recipe.filled, "texts": len(asked), "tokens": args.tokens}
    report = {**about, "stale_tokens": comparison.stale_tokens, "provenance": provenance()}
    _write(args.out, report, found)
    print(args.out)


def _configure(args: argparse.Namespace) -> None:
    """Put the settings of a configuration's entry in the place of the options."""
    from ragauge.errors import unknown
    from ragauge.experiment import schema

    entries = schema.load(args.config).staleness
    if args.label not in entries:
        raise unknown("comparison", args.label, entries, f"{args.config}: staleness")
    vars(args).update(entries[args.label].model_dump(exclude={"database"}))


def _retriever(args: argparse.Namespace) -> Retriever:
    """The index, asked in this process, with the encoder that its vectors were made with."""
    from ragauge.retrieval.embed import Embeddings
    from ragauge.retrieval.retriever import Retriever

    made = Embeddings.open(args.database, 0).manifest
    return Retriever.open(
        args.database, args.index, encoder=made["encoder"], engine=made["engine"], threads=args.threads
    )


def _write(path: Path, report: dict[str, Any], found: list[Likeness]) -> None:
    from dataclasses import asdict

    from ragauge.io.records import replace_atomically

    text = json.dumps({**report, "queries": [asdict(one) for one in found]}, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, f"{text}\n".encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
