"""Builds of a chunk database at one, two and four times a corpus: seconds, memory and disk of every job.

    python benchmarks/scale.py OUT.csv [--corpus FILE ...] [--documents 24] [--folder FOLDER]

The documents of the corpora (default: the Wikipedia sample) are mixed by a seed; one time the corpus is the first
`--documents` of them, and by default a quarter. Each size is built in as many shards, so that shards are of one size,
and the largest once more in a single shard. Jobs run one after the other on one core, as the workflow would start
them. OUT.json beside the table says on what machine. `ragauge capacity --measured OUT.csv` plans larger builds from it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from ragauge.capacity import Job
from ragauge.cost import machine
from ragauge.retrieval.corpus import Corpus, Share
from ragauge.retrieval.database import Shard, shard_folder
from ragauge.retrieval.settings import IndexRecipe

TIMES = (1, 2, 4)
INDEX = IndexRecipe(nlist=64, pq_bytes=64, train_vectors=2000)
SETTINGS = [f"{key}={getattr(INDEX, key)}" for key in ("nlist", "pq_bytes", "train_vectors")]


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, machine.competing_load() as load:
        jobs = list(_builds(Path(folder), args.corpus, args.documents))
    _write(args.out, jobs)
    facts = {
        "nlist": INDEX.nlist,
        "iterations": INDEX.iterations,
        "dim": 384,
        "flop_per_s": machine.measure(threads=1)["matmul_flop_per_s"]["float32"]["median"],
        "corpus": args.corpus,
        "load_share": load.share,
        "provenance": machine.provenance(),
    }
    args.out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    if load.share > machine.MAX_LOAD:
        print(f"not to be reported: more than {machine.MAX_LOAD:.0%} of the processor was others'")


def _builds(folder: Path, sources: list[str], count: int | None) -> Iterator[Job]:
    texts = [document.text for document in Corpus(tuple(sources)).documents(Share())]
    random.Random(0).shuffle(texts)
    count = count or len(texts) // max(TIMES)
    for times, shards in [*((times, times) for times in TIMES), (max(TIMES), 1)]:
        corpus = folder / f"{times}.jsonl"
        lines = (json.dumps({"text": text}) for text in texts[: times * count])
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield from _build(folder / f"{times}-{shards}", corpus, times, shards)


def _build(database: Path, corpus: Path, times: int, shards: int) -> Iterator[Job]:
    """Every job of one build."""
    steps = [("chunks", True), ("gather", False), ("embed", True), ("train", False), ("add", True), ("merge", False)]
    for step, by_shard in steps:
        for shard in range(shards) if by_shard else [None]:
            before = _bytes(database)
            seconds, cpu_s, peak_mb = _run(_command(step, database, corpus, shards, shard))
            counts = [_counts(database, number) for number in ([shard] if shard is not None else range(shards))]
            chunks, documents = (sum(column) for column in zip(*counts, strict=True))
            worked = min(chunks, INDEX.train_vectors) if step == "train" else chunks
            job = Job(times, shards, step, worked, documents, seconds, cpu_s, peak_mb, _bytes(database) - before)
            print(f"{times}x in {shards}: {step:7} {chunks:7,} chunks {seconds:7.1f} s {peak_mb:6.0f} MB", flush=True)
            yield job


def _command(step: str, database: Path, corpus: Path, shards: int, shard: int | None) -> list[str]:
    command = [sys.executable, "-m", "ragauge.cli", "index", step, "--out", str(database), "--threads", "1"]
    command += ["--set", f"corpus={corpus}", "--set", f"shards={shards}", "--set", "evaluation=documents"]
    command += [part for setting in SETTINGS for part in ("--set-index", setting)]
    return command + (["--shard", str(shard)] if shard is not None else [])


def _run(command: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak resident megabytes of a command on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(said.decode(errors="replace"))
    return round(seconds, 3), round(used.ru_utime + used.ru_stime, 3), round(used.ru_maxrss / 1024, 1)


def _counts(database: Path, shard: int) -> tuple[int, int]:
    part = Shard.open(shard_folder(database, shard))
    return part.chunks, part.documents


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write(path: Path, jobs: list[Job]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Job)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(job) for job in jobs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.csv")
    parser.add_argument(
        "--corpus", nargs="+", default=["wikipedia-sample"], help="files or names, as databases take them"
    )
    parser.add_argument("--documents", type=int, help="of the corpus at one time its size")
    parser.add_argument("--folder", type=Path, help="where the builds go, and are removed (the system's)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
