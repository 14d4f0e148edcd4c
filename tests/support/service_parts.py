"""What the tests of the retrieval service share: a small searcher in memory, a server process of
it, queries.

    python tests/support/service_parts.py [--part 0 --of 3] [--port N]

serves it as `ragauge serve` serves an index.
"""

import argparse
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import About, Neighbour, Neighbours, Query
from ragauge.pipelines.service.process import running_command, serve
from ragauge.pipelines.service.server import Server
from ragauge.pipelines.service.settings import ServerSettings

CHUNKS = 400
CHUNK = 8
VOCABULARY = 250
LISTS = 16
SLEEP = "sleep"
FAIL = "fail"
HANG = "hang"  # texts that make a search take 0.5 s, meet a defect, or take 60 s
ABOUT = About("toy", "tokenizer", "encoder", "l2", CHUNKS, LISTS, VOCABULARY, CHUNK)


class Toy:
    """Random chunks in 16 lists, of which a search scans the `nprobe` nearest; a part holds every
    n-th chunk.
    """

    def __init__(self, part=0, of=1):
        draw = np.random.default_rng(0)
        self.tokens = draw.integers(1, VOCABULARY, (CHUNKS, CHUNK)).astype(np.int32)
        self.lengths = draw.integers(1, CHUNK + 1, CHUNKS).astype(np.int32)
        self.tokens[np.arange(CHUNK) >= self.lengths[:, None]] = 0
        # few places, so that many distances tie
        self.vectors = draw.integers(0, 4, (CHUNKS, 3)).astype(np.float32)
        self.centroids = draw.integers(0, 4, (LISTS, 3)).astype(np.float32)
        self.lists = ((self.vectors[:, None] - self.centroids) ** 2).sum(-1).argmin(1)
        self.documents = np.arange(CHUNKS) // 5
        self.held = np.arange(CHUNKS) % of == part
        self.searched = []

    def search(self, queries):
        self.searched += [query.text for query in queries]
        for query in queries:
            if query.text == FAIL:
                raise ZeroDivisionError("a defect")
            if query.text == "mistake":
                raise UserError("query: a mistake that only the searcher sees")
            self.linger(query.text)
        return [self._search(query) for query in queries]

    def linger(self, text):
        time.sleep({SLEEP: 0.5, HANG: 60.0}.get(text or "", 0.0))

    def _search(self, query):
        content = (
            list(query.tokens) if query.tokens is not None else list((query.text or "").encode())
        )
        vector = np.random.default_rng(content).integers(0, 4, 3).astype(np.float32)
        nprobe = query.nprobe or (
            4 if query.budget_s is None else min(LISTS, max(1, int(query.budget_s * 100)))
        )
        scanned = ((self.centroids - vector) ** 2).sum(-1).argsort(kind="stable")[:nprobe]
        candidates = np.flatnonzero(self.held & np.isin(self.lists, scanned))
        distances = ((self.vectors[candidates] - vector) ** 2).sum(-1)
        nearest = np.lexsort((candidates, distances))[: query.k]
        return self._neighbours(query, candidates[nearest], distances[nearest], nprobe)

    def _neighbours(self, query, found, distances, nprobe):
        rows = [
            Neighbour(
                chunk,
                float(distance),
                int(self.documents[chunk]),
                self._follow(chunk, chunk),
                [
                    t
                    for more in range(query.continuation)
                    for t in self._follow(chunk + 1 + more, chunk)
                ],
            )
            for chunk, distance in zip(found.tolist(), distances, strict=True)
        ]
        return Neighbours(rows, nprobe, {"encode": 0.0, "search": 0.001, "lookup": 0.0})

    def _follow(self, chunk, of):
        """The tokens of a chunk, where it belongs to the document of another."""
        same = chunk < len(self.documents) and self.documents[chunk] == self.documents[of]
        return self.tokens[chunk, : self.lengths[chunk]].tolist() if same else []


class Held(Toy):
    """The toy, whose searches of SLEEP go on until they are released, however slow the machine is."""

    def __init__(self):
        super().__init__()
        self.release = threading.Event()

    def linger(self, text):
        assert text != SLEEP or self.release.wait(60)


class Served:
    """A searcher as a server takes it: a toy that searches one request alone searches one after
    another.
    """

    def __init__(self, searcher, about, detokenize):
        self.searcher = searcher
        self.describe = lambda: about
        self.detokenize = detokenize

    def search_together(self, requests):
        if hasattr(self.searcher, "search_together"):
            return self.searcher.search_together(requests)
        return [self.searcher.search(request) for request in requests]


def server(
    searcher,
    about=ABOUT,
    *,
    detokenize=None,
    tls=None,
    token=None,
    **settings,
):
    chosen = ServerSettings(**{"port": 0, **settings})
    return Server(Served(searcher, about, detokenize), chosen, tls=tls, token=token)


def spelled(sequences):
    """The toy's tokenizer: `t5 t17`."""
    return [" ".join(f"t{token}" for token in sequence) for sequence in sequences]


def queries(count=12):
    draw = np.random.default_rng(1)
    made = []
    for i in range(count):
        content = (
            {"text": f"question {i}"}
            if i % 3 == 0
            else {"tokens": draw.integers(1, 250, 9).tolist()}
        )
        nprobe = [{}, {"nprobe": 1 + i % LISTS}, {"budget_s": 0.02 * (1 + i)}][i % 3]
        made.append(Query(**content, **nprobe, k=1 + i % 5, continuation=i % 3))
    return made


def assert_same(found, expected):
    """Equal in everything but seconds."""
    assert [replace(one, seconds={}) for one in found] == [
        replace(one, seconds={}) for one in expected
    ]


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def process(*options, stop_s=5.0):
    """A server of the toy in a process of its own."""
    command = [sys.executable, __file__, "--while-stdin-open", *options]
    with running_command(command, start_s=20.0, stop_s=stop_s) as server:
        yield server


def main():
    parser = argparse.ArgumentParser()
    for option, default in (("--part", 0), ("--of", 1), ("--port", 0)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--while-stdin-open", action="store_true")
    args = parser.parse_args()
    running = server(Toy(part=args.part, of=args.of), port=args.port, detokenize=spelled)
    serve(running, args.grace, while_stdin_open=args.while_stdin_open)


if __name__ == "__main__":
    main()
