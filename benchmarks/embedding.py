"""Embedding chunks: sentence-transformers as it comes, our encoder in torch (float32, bfloat16),
and in ONNX Runtime.

    python benchmarks/embedding.py DATABASE [--threads 2] [--chunks 1024] [--rounds 5]

DATABASE is a folder that `ragauge index chunks` wrote to. Every round runs each encoder once over
the same chunks, in a random order; a ratio is sentence-transformers' median seconds over ours.
Vectors are checked to agree: to 1e-5, and those of bfloat16 by cosines of at least 0.9998.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from _common import finish
from ragauge.assets import resolver
from ragauge.cost.machine import MAX_LOAD, competing_load, cpu_model
from ragauge.pipelines.database.database import Shard
from ragauge.pipelines.database.embed import EncoderChoice, detokeniser
from targets import Verdicts

BASE = "sentence-transformers"
HALF = "bfloat16"
Encode = Callable[[Sequence[str]], np.ndarray]


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    texts = _texts(args.database, args.chunks)
    encoders = _encoders(args.threads)
    cosine = _check({name: encode(texts[:64]) for name, encode in encoders.items()})
    seconds, load = _time(encoders, texts, args.rounds)
    print(
        f"{len(texts)} chunks on {cpu_model()}, {args.threads} threads, {args.rounds} rounds, competing load {load:.1%}"
    )
    if load > MAX_LOAD:
        print(f"not to be reported: more than {MAX_LOAD:.0%} of the processor was others'")
    ratios: dict[str, float] = {}
    for name, times in seconds.items():
        median = statistics.median(times)
        ratio = statistics.median(seconds[BASE]) / median
        print(f"  {name:26} {len(texts) / median:8.1f} chunks/s   {ratio:.2f} x {BASE}")
        ratios[name] = ratio
    verdicts = Verdicts()
    ours = max((name for name in ratios if name != BASE), key=ratios.__getitem__)
    verdicts.check("embedding", ratios[ours], of=ours)
    verdicts.check("embedding_cosine", cosine)
    finish({"seconds": seconds, "ratios": ratios, "load_share": load}, verdicts, args.json)


def _encoders(threads: int) -> dict[str, Encode]:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(resolver.resolve("minilm")), device="cpu")
    ours = [EncoderChoice("minilm", "torch", threads), EncoderChoice("minilm", "onnx", threads)]
    ours.append(EncoderChoice("minilm", "torch", threads, HALF))
    base: Encode = lambda texts: np.asarray(library.encode(list(texts), show_progress_bar=False))  # noqa: E731
    return {
        BASE: base,
        **{f"ragauge {choice.engine} {choice.dtype}": choice.load().encode for choice in ours},
    }


def _texts(database: Path, count: int) -> list[str]:
    shard = Shard(database, 0)
    text = detokeniser(shard)
    rows = zip(shard.tokens[:count], shard.lengths[:count], strict=True)
    return [text(row[:length]) for row, length in rows]


def _check(vectors: dict[str, np.ndarray]) -> float:
    """The smallest cosine of a vector of ours to the library's."""
    least = min(float((found * vectors[BASE]).sum(axis=1).min()) for found in vectors.values())
    for name, found in vectors.items():
        if name.endswith(HALF):
            print(
                f"{name}: cosines of at least {(found * vectors[BASE]).sum(axis=1).min():.5f} to {BASE}"
            )
            assert ((found * vectors[BASE]).sum(axis=1) > 0.9998).all()
        else:
            np.testing.assert_allclose(found, vectors[BASE], atol=1e-5)
    return least


def _time(
    encoders: dict[str, Encode], texts: Sequence[str], rounds: int
) -> tuple[dict[str, list[float]], float]:
    """Seconds of each round by encoder, and the load of other processes meanwhile."""
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    with competing_load() as load:
        for _ in range(rounds):
            for name in random.sample(list(encoders), len(encoders)):
                start = time.perf_counter()
                encoders[name](texts)
                seconds[name].append(time.perf_counter() - start)
    return seconds, load.share


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON in the last line"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
