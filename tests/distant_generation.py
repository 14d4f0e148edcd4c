"""Generation on a host of its own, beside retrieval on others.

    python tests/distant_generation.py SCHEDULE DEADLINE HOST:PORT ...

For every line `{"pause_at": N}` on standard input it generates once. At its N-th retrieval it prints `{"paused": N}`
and waits for another line. In the end it prints what was generated and found, or the error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import tiny_models
from ragauge.generation.evaluation import EvaluationStretch
from ragauge.generation.pipeline import Pipeline
from ragauge.generation.retrofit.joint import JointDecoding
from ragauge.retrieval.retriever import Neighbours, Query, Searcher
from ragauge.retrieval.service.client import Client, RetrievalError
from ragauge.retrieval.service.fanout import Fanout
from retro_parts import job, tokens

TEXT = EvaluationStretch("0", 0, tuple(tokens(150, 10)))


def generated(schedule: str, searcher: Searcher) -> dict[str, object]:
    """What a pipeline generates with a searcher, and with which neighbours."""
    chosen = job(schedule, 16, "generate")
    record = Pipeline(JointDecoding(tiny_models.tiny_lm(), form=chosen.form), chosen, searcher).record(TEXT)
    return {"generated": list(record.generated), "neighbours": json.loads(json.dumps(record.neighbours))}


class Paused:
    """A searcher that waits for a word at one of its searches."""

    def __init__(self, searcher: Searcher, pause_at: int) -> None:
        self._searcher, self._pause_at, self._searches = searcher, pause_at, 0

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        if self._searches == self._pause_at:
            print(json.dumps({"paused": self._pause_at}), flush=True)
            sys.stdin.readline()
        self._searches += 1
        return self._searcher.search(queries)


def main(schedule: str, deadline: str, *addresses: str) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(Client(address, deadline_s=float(deadline))) for address in addresses]
        for line in sys.stdin:
            started = time.monotonic()
            try:
                told = generated(schedule, Paused(Fanout(clients), json.loads(line)["pause_at"]))
            except RetrievalError as error:
                told = {"error": str(error)}
            print(json.dumps({**told, "seconds": time.monotonic() - started}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
