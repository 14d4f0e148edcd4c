"""Build a chunk database and its indexes, whole or one step at a time; resumes an interrupted build."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from ragauge.retrieval.chunking import DatabaseRecipe
    from ragauge.retrieval.database import Database
    from ragauge.retrieval.embed import EncoderChoice
    from ragauge.retrieval.settings import DatabaseSettings

RECALL_QUERIES = 200
logger = logging.getLogger(__name__)

STEPS = {
    "build": "all steps, shard after shard, for every index of the database",
    "chunks": "cut the documents of one shard into chunks",
    "evaluation": "cut the text of one evaluation set, of another corpus",
    "mark": "mark the near-duplicates of evaluation text in one shard",
    "gather": "list the shards and their near-duplicates in order",
    "embed": "embed the chunks of one shard",
    "train": "train an index on a sample",
    "add": "encode the vectors of one shard",
    "merge": "merge the shards; with --part I/N, those of one part",
    "recall": "measure recall@k against exact search, with held-out text",
    "verify": "hash every file of the database and its indexes",
}
WITH_RESULT = ("build", "recall", "verify")  # print a result of their own
BY_SHARD, BY_INDEX = ("chunks", "mark", "embed", "add"), ("train", "add", "merge", "recall")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per step; all take the settings of the database."""
    steps = parser.add_subparsers(required=True, metavar="STEP", dest="step")
    for name, text in STEPS.items():
        step = steps.add_parser(name, help=text, description=text, allow_abbrev=False)
        add = step.add_argument
        options.add_config(step, "a configuration with a section `databases`")
        options.add_entry(step, "databases")
        options.add_set(step, "a setting of the database; index.KEY=VALUE: of its index or indexes")
        options.add_database(step, "the database's folder")
        add("--threads", type=options.count, metavar="N", help="default: all cores")
        if name in BY_SHARD:
            add("--shard", type=int, required=True, metavar="I", help="counted from 0")
        if name == "evaluation":
            add("--evaluation", metavar="LABEL", help="an evaluation set of the database; default: its only one")
        if name in BY_INDEX:
            add("--index", metavar="LABEL", help="an index of the database; default: its only one")
        if name == "merge":
            add("--part", type=options.part, metavar="I/N", help="every N-th shard, from shard I, counted from 0")
        if name == "recall":
            add("--queries", type=int, default=RECALL_QUERIES, metavar="N", help=f"held-out chunks ({RECALL_QUERIES})")
            add("--out", type=Path, metavar="FILE.json", help="default: recall.json beside the index")


def run(args: argparse.Namespace) -> None:
    """One step, or all of them."""
    settings = _settings(args)
    steps: dict[str, Callable[[argparse.Namespace, DatabaseSettings], None]] = {
        "build": _build,
        "chunks": lambda args, settings: _chunks(args, settings, args.shard),
        "evaluation": lambda args, settings: _evaluation(args, settings, _set_label(args, settings)),
        "mark": lambda args, settings: _mark(args, settings, args.shard),
        "gather": _gather,
        "embed": lambda args, settings: _embed(args, settings, args.shard),
        "train": lambda args, settings: _train(args, settings, _label(args, settings)),
        "add": lambda args, settings: _add(args, settings, _label(args, settings), args.shard),
        "merge": lambda args, settings: _merge(args, settings, _label(args, settings), args.part),
        "recall": lambda args, settings: _recall(args, settings, _label(args, settings)),
        "verify": _verify,
    }
    steps[args.step](args, settings)
    if args.json and args.step not in WITH_RESULT:
        options.show({"database": args.database, "step": args.step}, as_json=True)


# --- steps ---


def _build(args: argparse.Namespace, settings: DatabaseSettings) -> None:
    for shard in range(settings.shards):
        _chunks(args, settings, shard)
    for label in settings.evaluation_sets:
        _evaluation(args, settings, label)
    for shard in range(settings.shards):
        _mark(args, settings, shard)
    _gather(args, settings)
    for shard in range(settings.shards):
        _embed(args, settings, shard)
    for label, recipe in settings.indexes.items():
        _train(args, settings, label)
        for shard in range(recipe.shards or settings.shards):
            _add(args, settings, label, shard)
        for number in range(recipe.parts if recipe.parts > 1 else 0):
            _merge(args, settings, label, (number, recipe.parts))
        _merge(args, settings, label, None)
    options.tell(args, args.database, database=args.database, indexes=list(settings.indexes))


def _chunks(args: argparse.Namespace, settings: DatabaseSettings, shard: int) -> None:
    from ragauge.retrieval.chunking import build_shard

    _log(build_shard(args.database, _recipe(settings), _shard(shard, settings)), f"chunks of shard {shard}")


def _evaluation(args: argparse.Namespace, settings: DatabaseSettings, label: str) -> None:
    from ragauge.retrieval.chunking import Split, build_evaluation_set
    from ragauge.retrieval.corpus import Corpus

    chosen = settings.evaluation_sets[label]
    corpus = Corpus(chosen.sources, chosen.text_field, chosen.limit)
    _log(
        build_evaluation_set(args.database, label, corpus, Split(chosen.part, chosen.share)), f"evaluation set {label}"
    )


def _mark(args: argparse.Namespace, settings: DatabaseSettings, shard: int) -> None:
    from ragauge.retrieval.chunking import mark

    made = mark(args.database, settings.shards, _shard(shard, settings), list(settings.evaluation_sets))
    _log(made, f"near-duplicates of shard {shard}")


def _gather(args: argparse.Namespace, settings: DatabaseSettings) -> None:
    from ragauge.retrieval.chunking import gather
    from ragauge.retrieval.database import Database

    _log(gather(args.database, settings.shards, list(settings.evaluation_sets)), "gathered")
    logger.info("%s", ", ".join(f"{key} {value:,}" for key, value in Database(args.database).counts.items()))


def _embed(args: argparse.Namespace, settings: DatabaseSettings, shard: int) -> None:
    from ragauge.retrieval.embed import build_embeddings

    made = build_embeddings(args.database, _shard(shard, settings), _encoder(args, settings))
    _log(made, f"embeddings of shard {shard}")


def _train(args: argparse.Namespace, settings: DatabaseSettings, label: str) -> None:
    from ragauge.retrieval.index import train

    _set_threads(args.threads)
    _log(train(args.database, label, settings.indexes[label]), f"index {label}: trained")


def _add(args: argparse.Namespace, settings: DatabaseSettings, label: str, shard: int) -> None:
    from ragauge.retrieval.index import add

    _set_threads(args.threads)
    _log(add(args.database, label, settings.indexes[label], shard), f"index {label}: shard {shard} added")


def _merge(args: argparse.Namespace, settings: DatabaseSettings, label: str, part: tuple[int, int] | None) -> None:
    from ragauge.retrieval.index import merge

    of = f" part {part[0]} of {part[1]}" if part else ""
    _log(merge(args.database, label, settings.indexes[label], part), f"index {label}: merged{of}")


def _recall(args: argparse.Namespace, settings: DatabaseSettings, label: str) -> None:
    from ragauge.retrieval.database import Database
    from ragauge.retrieval.index import Index, index_folder
    from ragauge.retrieval.recall import recall
    from ragauge.retrieval.vectors import Vectors

    if args.queries < 1:
        raise UserError(f"--queries {args.queries}: must be at least 1")
    _set_threads(args.threads)
    database = Database(args.database)
    index, vectors = Index(database, label), Vectors.open(args.database, settings.indexes[label])
    queries = _held_out_vectors(database, _encoder(args, settings), args.queries)
    report = {
        "index": index.sha256,
        "settings": settings.indexes[label].model_dump(),
        "vectors": len(index),
        "filled": index.recipe.filled,
        "queries": len(queries),
        "recall": recall(index, vectors, queries),
    }
    path = args.out or index_folder(args.database, label) / "recall.json"
    options.write_json(path, report)
    options.tell(args, path, out=path, recall=report["recall"])


def _verify(args: argparse.Namespace, settings: DatabaseSettings) -> None:
    from ragauge.io import folders
    from ragauge.retrieval.database import Database, EvaluationSet
    from ragauge.retrieval.embed import Embeddings
    from ragauge.retrieval.index import Index

    files, size = folders.verify(args.database)  # before faiss reads sizes that a file states
    database = Database(args.database)
    for label in settings.evaluation_sets:
        EvaluationSet.open(args.database, label)
    for shard in range(settings.shards):
        Embeddings.open(args.database, shard)
    for label in settings.indexes:
        Index(database, label)
    message = f"{args.database}: {len(database):,} chunks and {len(settings.indexes)} indexes are intact: "
    message += f"{files:,} files read, {size:,} bytes"
    facts = {"chunks": len(database), "indexes": list(settings.indexes), "files": files, "bytes": size}
    options.tell(args, message, database=args.database, **facts)


# --- shared by the steps ---


def _settings(args: argparse.Namespace) -> DatabaseSettings:
    """The database of the configuration, or the defaults; --set overrides both."""
    from ragauge.config import loading

    place, label, data = "--set", args.entry or "database", {}
    if args.config:
        databases = loading.load(args.config).databases
        label = options.label(databases, args.entry, "database", f"{args.config}: databases")
        place, data = str(args.config), databases[label].model_dump(exclude_unset=True)
    own, changes = options.settings(args.set, "index")
    data |= own
    if changes:
        indexes = data.get("indexes") or {"ivf": {}}
        data["indexes"] = {name: {**recipe, **changes} for name, recipe in indexes.items()}
    return loading.parse_database(data, place, label)


def _label(args: argparse.Namespace, settings: DatabaseSettings) -> str:
    return options.label(dict(settings.indexes), args.index, "index", "indexes", "--index")


def _set_label(args: argparse.Namespace, settings: DatabaseSettings) -> str:
    sets = dict(settings.evaluation_sets)
    return options.label(sets, args.evaluation, "evaluation set", "database: evaluation_sets", "--evaluation")


def _recipe(settings: DatabaseSettings) -> DatabaseRecipe:
    from ragauge.retrieval.chunking import DatabaseRecipe, Split
    from ragauge.retrieval.corpus import Corpus

    return DatabaseRecipe(
        corpus=Corpus(settings.sources, settings.text_field, settings.limit),
        tokenizer=settings.tokenizer,
        chunk_tokens=settings.chunk_tokens,
        split=Split(settings.evaluation, settings.evaluation_share),
        shards=settings.shards,
    )


def _encoder(args: argparse.Namespace, settings: DatabaseSettings) -> EncoderChoice:
    from ragauge.retrieval.embed import EncoderChoice

    return EncoderChoice(settings.encoder, settings.engine, args.threads, settings.dtype)


def _shard(number: int, settings: DatabaseSettings) -> int:
    if not 0 <= number < settings.shards:
        raise UserError(f"--shard {number}: the database has {settings.shards} shards, counted from 0")
    return number


def _held_out_vectors(database: Database, choice: EncoderChoice, count: int) -> np.ndarray:
    """Vectors (query, dim) of the first whole chunk of held-out texts, spread evenly over those long enough."""
    from ragauge.retrieval.database import encode

    texts = []
    for held_out in database.evaluation():
        [tokens] = encode(database.tokenizer, [held_out.text])
        if len(tokens) >= database.chunk_tokens:
            texts.append(database.tokenizer.decode(tokens[: database.chunk_tokens]))
    if not texts:
        raise UserError(f"{database.folder}: no held-out text of {database.chunk_tokens} tokens to search for")
    step = max(1, len(texts) // count)
    return choice.load().encode(texts[::step][:count])


def _set_threads(threads: int | None) -> None:
    if threads:
        import faiss

        faiss.omp_set_num_threads(threads)


def _log(made: bool, what: str) -> None:
    """Say what a step made, or that it was there already."""
    logger.info("%s%s", what, "" if made else ": there already")
