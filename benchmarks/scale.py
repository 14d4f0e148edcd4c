"""Measure builds of a chunk database at one, two and four times a corpus, job by job.

    python benchmarks/scale.py OUT.csv [--corpus FILE ...] [--documents 24] [--set KEY=VALUE] [--set-index KEY=VALUE]

The documents of the corpora (default: the Wikipedia sample) are mixed by a seed; one time the
corpus is the first `--documents` of them, and by default a quarter. Each size is built in as many
shards, so that shards are of one size, and once more in a single shard, which grows with it. Jobs
run one after the other on one core, as the workflow would start them. OUT.json beside the table
says on what machine. `builds.py CONFIG OUT.csv` plans the builds of a configuration from it.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from builds import BY_SHARD, STEPS, BuildJob
from ragauge.cost import machine
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.database import Shard
from ragauge.pipelines.database.documents import ShardShare
from ragauge.pipelines.database.embed import Embeddings
from ragauge.pipelines.indexes.base.recipe import DEFAULT_TYPE
from ragauge.pipelines.indexes.base.types import recipe_class

# Runs the command line and tells the most memory that it held. What the kernel tells of a child counts the memory of
# the process that started it, too.
MEASURED = """
import runpy, sys
try:
    runpy.run_module("ragauge.cli", run_name="__main__", alter_sys=True)
finally:
    [peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    print(peak, file=sys.stderr)
"""
INDEX = {"nlist": "64", "pq_bytes": "64", "train_vectors": "2500"}


def main() -> None:
    args = _arguments()
    index = recipe_class(args.set_index["type"]).model_validate(args.set_index, strict=False)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, machine.competing_load() as load:
        jobs = list(_builds(Path(folder), args))
        dim = Embeddings(Path(folder) / f"{args.times[0]}-{args.times[0]}", 0).dim
    _write(args.out, jobs)
    facts = {
        **index.model_dump(include={"type", "nlist", "iterations"}),
        "dim": dim,
        "flop_per_s": machine.measure(threads=1)["matmul_flop_per_s"]["float32"]["median"],
        "corpus": [Path(name).name for name in args.corpus],
        "load_share": load.share,
        "provenance": machine.provenance(),
    }
    args.out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    if load.share > machine.MAX_LOAD:
        print(f"not to be reported: more than {machine.MAX_LOAD:.0%} of the processor was others'")


def _builds(folder: Path, args: argparse.Namespace) -> Iterator[BuildJob]:
    texts = [document.text for document in Corpus(tuple(args.corpus)).documents(ShardShare())]
    random.Random(0).shuffle(texts)
    count = args.documents or len(texts) // max(args.times)
    sizes = [(times, shards) for times in args.times for shards in dict.fromkeys((times, 1))]
    for times, shards in sizes:
        corpus = folder / f"{times}.jsonl"
        lines = (json.dumps({"text": text}) for text in texts[: times * count])
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield from _build(folder / f"{times}-{shards}", corpus, times, shards, args)


def _build(
    database: Path, corpus: Path, times: int, shards: int, args: argparse.Namespace
) -> Iterator[BuildJob]:
    """Every job of one build."""
    settings = {**args.set, "corpus": str(corpus), "shards": str(shards), "evaluation": "documents"}
    for step in STEPS:
        for shard in range(shards) if step in BY_SHARD else [None]:
            before = _bytes(database)
            seconds, cpu_s, peak_mb = _run(
                _command(step, database, settings, args.set_index, shard)
            )
            chunks, documents, held_out = _counts(
                database, range(shards) if shard is None else [shard]
            )
            if step == "mark":
                held_out = _counts(database, range(shards))[
                    2
                ]  # a shard's documents are looked up among all
            worked = (
                min(chunks, int(args.set_index.get("train_vectors", chunks)))
                if step == "train"
                else chunks
            )
            disk = _bytes(database) - before
            yield BuildJob(
                corpus=times,
                shards=shards,
                step=step,
                chunks=worked,
                documents=documents,
                held_out=held_out,
                seconds=seconds,
                cpu_s=cpu_s,
                peak_mb=peak_mb,
                disk_bytes=disk,
            )
            print(
                f"{times}x in {shards}: {step:7} {worked:7,} chunks {seconds:7.1f} s {peak_mb:6.0f} MB",
                flush=True,
            )


def _command(
    step: str,
    database: Path,
    settings: Mapping[str, str],
    index: Mapping[str, str],
    shard: int | None,
) -> list[str]:
    command = [
        sys.executable,
        "-c",
        MEASURED,
        "index",
        step,
        "--database",
        str(database),
        "--threads",
        "1",
    ]
    command += [part for pair in settings.items() for part in ("--set", "=".join(pair))]
    command += [part for pair in index.items() for part in ("--set", f"index.{'='.join(pair)}")]
    return command + (["--shard", str(shard)] if shard is not None else [])


def _run(command: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak resident megabytes of a command on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stderr=said, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here
        said.seek(0)
        text = said.read().decode(errors="replace")
    if status:
        sys.exit(text)
    peak_kib = int(text.rpartition("VmHWM:")[2].split()[0])
    return round(seconds, 3), round(used.ru_utime + used.ru_stime, 3), round(peak_kib / 1024, 1)


def _counts(database: Path, shards: Iterable[int]) -> tuple[int, int, int]:
    """Chunks, documents and held-out texts of shards."""
    counts = [Shard(database, shard).manifest["counts"] for shard in shards]
    chunks, documents, held_out = (
        sum(c[name] for c in counts) for name in ("chunks", "documents", "evaluation")
    )
    return chunks, documents, held_out


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write(path: Path, jobs: list[BuildJob]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(BuildJob.model_fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows(job.model_dump() for job in jobs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("out", type=Path, metavar="OUT.csv")
    add(
        "--corpus",
        nargs="+",
        default=["wikipedia-sample"],
        help="files or names, as databases take them",
    )
    add("--documents", type=int, help="of the corpus at one time its size")
    add(
        "--times",
        type=int,
        nargs="+",
        default=[1, 2, 4],
        help="sizes of the corpus, and so many shards (1 2 4)",
    )
    add("--folder", type=Path, help="where the builds go, and are removed (the system's)")
    add(
        "--set",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the database",
    )
    add(
        "--set-index",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of its index",
    )
    args = parser.parse_args()
    args.set, stated = dict(args.set), {"type": DEFAULT_TYPE, **dict(args.set_index)}
    args.set_index = (INDEX if stated["type"] == DEFAULT_TYPE else {}) | stated
    return args


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE")
    return key, value


if __name__ == "__main__":
    main()
