"""Build a chunk database and its indexes, whole or one step at a time; resumes an interrupted
build.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.pipelines.retrieval.settings import DatabaseSettings

RECALL_QUERIES = 200  # held-out chunks that are searched for
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
    "merge": "merge the shards, and each part of several",
    "recall": "measure recall@k against exact search, with held-out text",
    "verify": "hash every file of the database and its indexes",
}
BY_SHARD = ("chunks", "mark", "embed", "add")
BY_INDEX = ("train", "add", "merge", "recall")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        options.add_config(step, "a configuration with a section `databases`")
        options.add_entry(step, "databases")
        options.add_set(step, "a setting of the database; index.KEY=VALUE: of its index or indexes")
        options.add_database(step, "the database's folder")
        options.add_threads(step)
        if name in BY_SHARD:
            add("--shard", type=int, required=True, metavar="I", help="counted from 0")
        if name == "evaluation":
            add(
                "--evaluation",
                metavar="LABEL",
                help="an evaluation set of the database; default: its only one",
            )
        if name in BY_INDEX:
            add("--index", metavar="LABEL", help="an index of the database; default: its only one")
        if name == "recall":
            add(
                "--minutes",
                type=float,
                metavar="M",
                help="of exact search, shard by shard; default: of all shards",
            )
            add(
                "--out",
                type=Path,
                metavar="FILE.json",
                help="default: recall.json next to the index",
            )


def run(args: argparse.Namespace) -> None:
    settings = _settings(args)
    label = ""
    step = args.step
    shard = getattr(args, "shard", 0)
    if step != "add" and not 0 <= shard < settings.shards:
        raise UserError(
            f"--shard {shard}: the database has {settings.shards} shards, counted from 0"
        )
    if step == "evaluation":
        where = ("evaluation set", "database: evaluation_sets", "--evaluation")
        label = options.label(dict(settings.evaluation_sets), args.evaluation, *where)
    if step in BY_INDEX:
        label = options.label(dict(settings.indexes), args.index, "index", "indexes", "--index")
    if args.threads and step in (*BY_INDEX, "build"):
        import faiss

        faiss.omp_set_num_threads(args.threads)
    if step in (complete := {"build": _build, "recall": _recall, "verify": _verify}):
        complete[step](args, settings, label)
        return
    _make(args, settings, step, shard, label)
    if args.json:
        options.print_result(args, "", database=args.database, step=step)


def _build(args: argparse.Namespace, settings: DatabaseSettings, _: str) -> None:
    shards = range(settings.shards)
    steps = [("chunks", shard, "") for shard in shards]
    steps += [("evaluation", 0, label) for label in settings.evaluation_sets]
    steps += [("mark", shard, "") for shard in shards]
    steps += [("gather", 0, ""), *(("embed", shard, "") for shard in shards)]
    for label, recipe in settings.indexes.items():
        added = [("add", shard, label) for shard in range(recipe.shards or settings.shards)]
        steps += [("train", 0, label), *added, ("merge", 0, label)]
    for step, shard, label in steps:
        _make(args, settings, step, shard, label)
    options.print_result(
        args, args.database, database=args.database, indexes=list(settings.indexes)
    )


def _make(
    args: argparse.Namespace, settings: DatabaseSettings, step: str, shard: int, label: str
) -> None:
    from ragauge.pipelines.database import chunking, embed
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.retrieval import index

    folder = args.database
    sets = list(settings.evaluation_sets)
    if step in BY_INDEX:
        recipe = settings.indexes[label]
    if step == "chunks":
        _log(chunking.build_shard(folder, settings, shard), f"chunks of shard {shard}")
    elif step == "evaluation":
        chosen = settings.evaluation_sets[label]
        _log(chunking.build_evaluation_set(folder, label, chosen), f"evaluation set {label}")
    elif step == "mark":
        _log(
            chunking.mark(folder, settings.shards, shard, sets), f"near-duplicates of shard {shard}"
        )
    elif step == "gather":
        _log(chunking.gather(folder, settings.shards, sets), "gathered")
        logger.info(
            "%s", ", ".join(f"{key} {value:,}" for key, value in Database(folder).counts.items())
        )
    elif step == "embed":
        engine = "torch" if settings.device == "cuda" else settings.engine
        encoder = embed.EncoderChoice(
            settings.encoder, engine, args.threads, settings.dtype, settings.device
        )
        _log(embed.build_embeddings(folder, shard, encoder), f"embeddings of shard {shard}")
    elif step == "train":
        _log(index.train(folder, label, recipe), f"index {label}: trained")
    elif step == "add":
        _log(index.add(folder, label, recipe, shard), f"index {label}: shard {shard} added")
    else:
        parts = [
            (number, recipe.parts) for number in range(recipe.parts if recipe.parts > 1 else 0)
        ]
        for one in [*parts, None]:
            what = f"index {label}: merged" + (f" part {one[0]} of {one[1]}" if one else "")
            _log(index.merge(folder, label, recipe, one), what)


def _log(made: bool, what: str) -> None:
    logger.info("%s%s", what, "" if made else ": there already")


def _recall(args: argparse.Namespace, settings: DatabaseSettings, label: str) -> None:
    from ragauge.pipelines.database.database import Database, encode
    from ragauge.pipelines.database.embed import EncoderChoice
    from ragauge.pipelines.database.vectors import Vectors
    from ragauge.pipelines.retrieval.index import Index, index_folder
    from ragauge.pipelines.retrieval.recall import exact_search_within, recall

    database = Database(args.database)
    index = Index(database, label)
    vectors = Vectors.open(args.database, index.recipe)
    count = len(database.shards)
    # The first whole chunk of held-out texts, spread evenly over those that are long enough.
    encoded = (encode(database.tokenizer, [held_out.text])[0] for held_out in database.evaluation())
    size = database.chunk_tokens
    texts = [database.tokenizer.decode(tokens[:size]) for tokens in encoded if len(tokens) >= size]
    if not texts:
        raise UserError(f"{database.folder}: no held-out text of {size} tokens to search for")
    # that device embeds chunks, not queries
    dtype = "float32" if settings.device == "cuda" else settings.dtype
    choice = EncoderChoice(settings.encoder, settings.engine, args.threads, dtype)
    if choice.sha256 != index.encoder_sha256:
        raise UserError(
            f"{index.folder}: its vectors were not made with the encoder {settings.encoder!r}"
        )
    queries = choice.load().encode(texts[:: max(1, len(texts) // RECALL_QUERIES)][:RECALL_QUERIES])
    path = args.out or index_folder(args.database, label) / "recall.json"
    saved = path.with_name(f".{path.name}.npz")
    exact, shards = exact_search_within(vectors, queries, args.minutes, saved)
    report = {
        "index": index.sha256,
        "settings": index.recipe.model_dump()
        | ({"shards": None} if len(vectors.embeddings) == count else {}),
        "vectors": len(index),
        "filled": index.recipe.filled,
        "queries": len(queries),
        "shards": {"compared": len(shards), "of": len(vectors.embeddings)},
        "recall": recall(index, vectors, queries, exact, shards),
    }
    options.write_json(path, report)
    if len(shards) == len(vectors.embeddings):
        saved.unlink()
    options.print_result(args, path, out=path, recall=report["recall"])


def _verify(args: argparse.Namespace, settings: DatabaseSettings, _: str) -> None:
    from ragauge.pipelines.database.database import Database, EvaluationSet
    from ragauge.pipelines.retrieval.index import Index

    files, size = folders.verify(args.database)  # before faiss reads sizes that a file states
    database = Database(args.database)
    for label in settings.evaluation_sets:
        EvaluationSet(args.database, label)
    for label in settings.indexes:
        Index(database, label)
    chunks = len(database)
    indexes = list(settings.indexes)
    text = f"{chunks:,} chunks and {len(indexes)} indexes are intact: {files:,} files read, {size:,} bytes"
    facts = {"chunks": chunks, "indexes": indexes, "files": files, "bytes": size}
    options.print_result(args, f"{args.database}: {text}", database=args.database, **facts)


def _settings(args: argparse.Namespace) -> DatabaseSettings:
    where = "--set"
    data = dict[str, Any]()
    if args.config:
        databases = loading.load(args.config).databases
        where = f"{args.config}: databases"
        label = options.label(databases, args.entry, "database", where)
        where = f"{where}.{label}"
        data = databases[label].model_dump(exclude_unset=True)
    own, changes = options.settings(args.set, "index")
    data |= own
    if changes:
        indexes = data.get("indexes") or {"ivf": {}}
        data["indexes"] = {name: {**recipe, **changes} for name, recipe in indexes.items()}
    return loading.parse_database(data, where)
