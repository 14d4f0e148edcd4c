"""Embedding chunks: sentence-transformers, and our encoder in torch and in ONNX Runtime.

    python benchmarks/embedding.py DATABASE [--threads 2] [--chunks 1024] [--rounds 5]

DATABASE is a folder that `ragauge index chunks` wrote to. Every round runs each encoder once over
the same chunks, in a random order; a ratio is sentence-transformers' median seconds over ours.
Vectors are checked to agree: to 1e-5, but those of bfloat16, of which the least cosine is printed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from _common import Task, finish, interleaved, load_line, parse_options, times
from ragauge.assets.resolver import resolve
from ragauge.cost.machine import cpu_model
from ragauge.pipelines.database.database import Shard
from ragauge.pipelines.database.embed import EncoderChoice
from targets import Verdicts

BASE = "sentence-transformers"
HALF = "bfloat16"
Encode = Callable[[Sequence[str]], np.ndarray]


def main() -> None:
    args = parse_options(
        __doc__,
        "database",
        threads=(2, "of every encoder"),
        chunks=(1024, "embedded in a trial"),
        rounds=(5, "of all encoders"),
    )
    torch.set_num_threads(args.threads)
    texts = _texts(args.database, args.chunks)
    encoders = _encoders(args.threads)
    cosine = _check({name: encode(texts[:64]) for name, encode in encoders.items()})
    tasks: dict[str, Task] = {name: partial(encode, texts) for name, encode in encoders.items()}
    seconds, load = interleaved(tasks, args.rounds)
    print(f"{len(texts)} chunks on {cpu_model()}, {args.threads} threads, {args.rounds} rounds")
    print(load_line(load))
    medians = {name: times(values)["median"] for name, values in seconds.items()}
    ratios = {name: medians[BASE] / median for name, median in medians.items()}
    for name, ratio in ratios.items():
        print(f"  {name:26} {len(texts) / medians[name]:8.1f} chunks/s   {ratio:.2f} x {BASE}")
    verdicts = Verdicts()
    ours = max((name for name in ratios if name != BASE), key=ratios.__getitem__)
    verdicts.check("embedding", ratios[ours], of=ours)
    verdicts.check("embedding_cosine", cosine)
    finish({"seconds": seconds, "ratios": ratios, "load_share": load.share}, verdicts, args.json)


def _encoders(threads: int) -> dict[str, Encode]:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(resolve("minilm")), device="cpu")
    ours = [EncoderChoice("minilm", "torch", threads), EncoderChoice("minilm", "onnx", threads)]
    ours.append(EncoderChoice("minilm", "torch", threads, HALF))
    base: Encode = lambda texts: np.asarray(library.encode(list(texts), show_progress_bar=False))  # noqa: E731
    return {
        BASE: base,
        **{f"ragauge {choice.engine} {choice.dtype}": choice.load().encode for choice in ours},
    }


def _texts(database: Path, count: int) -> list[str]:
    return Shard(database, 0).texts(slice(count))


def _check(vectors: dict[str, np.ndarray]) -> float:
    """The smallest cosine of a vector of ours to the library's."""
    cosines = {}
    for name, found in vectors.items():
        cosines[name] = float((found * vectors[BASE]).sum(axis=1).min())
        print(f"{name}: cosines of at least {cosines[name]:.5f} to {BASE}")
        if not name.endswith(HALF):
            np.testing.assert_allclose(found, vectors[BASE], atol=1e-5)
    return min(cosines.values())


if __name__ == "__main__":
    main()
