"""Build a chunk database and its indexes, whole or one step at a time; resumes an interrupted
build.
"""

import argparse
from pathlib import Path
from typing import Any

from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.settings import DatabaseSettings

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
                "--out",
                type=Path,
                metavar="FILE.json",
                help="default: recall.json next to the index",
            )


def run(args: argparse.Namespace) -> None:
    settings = _settings(args)
    step = args.step
    shard = getattr(args, "shard", 0)
    if step != "add" and not 0 <= shard < settings.shards:
        raise UserError(
            f"--shard {shard}: the database has {settings.shards} shards, counted from 0"
        )
    label = ""
    if step == "evaluation":
        where = ("evaluation set", "database: evaluation_sets", "--evaluation")
        label = options.label(dict(settings.evaluation_sets), args.evaluation, *where)
    if step in BY_INDEX:
        label = options.label(dict(settings.indexes), args.index, "index", "indexes", "--index")
    from ragauge.pipelines.retrieval.build import DatabaseBuild

    build = DatabaseBuild(args.database, settings, args.threads)
    result: dict[str, Any] = {"database": args.database}
    text: object = ""
    if step == "build":
        build.run_all()
        text = args.database
        result["indexes"] = list(settings.indexes)
    elif step == "recall":
        from ragauge.pipelines.retrieval import recall

        text = args.out or recall.report_path(args.database, label)
        rows = recall.write_report(args.database, settings, label, text, args.threads)
        result = {"out": text, "recall": rows}
    elif step == "verify":
        facts = build.verify()
        result |= facts
        text = (
            f"{args.database}: {facts['chunks']:,} chunks and {len(settings.indexes)} indexes are intact: "
            f"{facts['files']:,} files read, {facts['bytes']:,} bytes"
        )
    else:
        build.run_step(step, shard, label)
        result["step"] = step
        if not args.json:
            return
    options.print_result(args, text, **result)


def _settings(args: argparse.Namespace) -> DatabaseSettings:
    where = "--set"
    data = dict[str, Any]()
    if args.config:
        databases = loading.load(args.config).databases
        where = f"{args.config}: databases"
        label = options.label(databases, args.entry, "database", where)
        where = f"{where}.{label}"
        data = databases[label].model_dump(exclude_unset=True)
    settings, changes = options.settings(args.set, "index")
    data |= settings
    if changes:
        indexes = data.get("indexes") or {"ivf": {}}
        data["indexes"] = {name: {**recipe, **changes} for name, recipe in indexes.items()}
    return loading.parse_database(data, where)
