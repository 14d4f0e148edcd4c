"""Quantising vectors for IVF-PQ: faiss's own way against matrix products.

    python benchmarks/quantisation.py [--threads 2] [--vectors 16384] [--dim 384] [--bytes 64]
    [--rounds 5]

Both add the same random unit vectors to copies of one trained index, in a random order each round.
Codes are compared.
"""

import argparse
import random
import statistics
import time

import faiss
import numpy as np

from ragauge.cost.machine import MAX_LOAD, competing_load, cpu_model
from ragauge.pipelines.database.coder import Coder
from ragauge.pipelines.database.embed import normalised

LISTS = 64


def main() -> None:
    args = _arguments()
    faiss.omp_set_num_threads(args.threads)
    draw = np.random.default_rng(0)
    vectors = normalised(draw.standard_normal((args.vectors, args.dim), dtype=np.float32))
    ids = np.arange(len(vectors))
    trained = faiss.index_factory(args.dim, f"IVF{LISTS},PQ{args.bytes}")
    trained.cp.niter = trained.pq.cp.niter = 2  # any centroids will do
    trained.train(vectors)
    residuals = (
        vectors
        - trained.quantizer.reconstruct_n(0, LISTS)[trained.quantizer.search(vectors, 1)[1][:, 0]]
    )
    same = (Coder(trained).codes(residuals) == trained.pq.compute_codes(residuals)).mean()
    seconds: dict[str, list[float]] = {"faiss": [], "ragauge": []}
    with competing_load() as load:
        for _ in range(args.rounds):
            for name in random.sample(list(seconds), len(seconds)):
                index = faiss.clone_index(trained)
                add = index.add_with_ids if name == "faiss" else Coder(index).add
                started = time.perf_counter()
                add(vectors, ids)
                seconds[name].append(time.perf_counter() - started)
    print(
        f"{len(vectors)} vectors of {args.dim} to {args.bytes} bytes on {cpu_model()}, {args.threads} threads"
    )
    print(
        f"{args.rounds} rounds, competing load {load.share:.1%}; {same:.4%} of the codes are the same"
    )
    if load.share > MAX_LOAD:
        print(f"not to be reported: more than {MAX_LOAD:.0%} of the processor was others'")
    for name, times in seconds.items():
        median = statistics.median(times)
        ratio = statistics.median(seconds["faiss"]) / median
        print(
            f"  {name:8} {1e6 * median / len(vectors):7.1f} microseconds a vector   {ratio:.2f} x faiss"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--threads", type=int, default=2)
    add("--vectors", type=int, default=16384)
    add("--dim", type=int, default=384)
    add("--bytes", type=int, default=64)
    add("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
