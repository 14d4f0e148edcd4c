"""What the tests of retrieval-augmented generation share: an exact retriever, a database with its
decoder on disk.
"""

import numpy as np
import torch

from json_lines import write_lines
from ragauge.pipelines import pipeline
from ragauge.pipelines.database.chunking import build_shard, gather, mark
from ragauge.pipelines.decoding import read_through
from ragauge.pipelines.modes._cross_attention import CrossWeights
from ragauge.pipelines.retrieval.retriever import About, Neighbour, Neighbours
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.sizes import Sizes
from ragauge.pipelines.sources import BlockingRetrieval, RetrievalOptions
from ragauge.pipelines.specification import PipelineSpecification
from ragauge.pipelines.windows import CHUNK
from ragauge.testing import write_checkpoint


def tokens(count, seed, vocab=250):
    """Random token ids, none of them special."""
    return [int(t) for t in np.random.default_rng(seed).integers(4, 4 + vocab, count)]


DOCUMENTS = [tokens(300, 2), tokens(130, 3), tokens(400, 4)]
# neighbours in them are of several lengths
OF_ALL_LENGTHS = [tokens(300, 2), tokens(70, 3), tokens(400, 4)]
TINY = Sizes(260, 4, 32, 4, 48, (1, 3), 2, 24, 2, 40, (1,))  # a RETRO
EXACT = About("exact", "tokenizer", "encoder", "l2", 14, 64, 260, 64)  # a server of them


def write_database(root, **changes):
    """`db`, of three articles with the last fifth of each held out, beside `model`, whose tokens it
    holds.

    Args:
        changes: to the decoder's LlamaConfig.
    """
    model = write_checkpoint(root / "model", **changes)
    lines = [
        {
            "title": name,
            "text": " ".join(
                f"{name} {i * 37 % 101} stands by the {i}th river." for i in range(40)
            ),
        }
        for name in ("Oslo", "Rome", "Lima")
    ]
    write_lines(root / "c.jsonl", lines)
    write_chunks(root, "db", str(model))
    return root


def write_chunks(root, name, model, **changes):
    """A database of this name over the articles that `write_database` wrote, in the tokens of a
    model.
    """
    made = DatabaseSettings(corpus=str(root / "c.jsonl"), tokenizer=model, shards=1, **changes)
    build_shard(root / name, made, 0)
    mark(root / name, 1, 0)
    gather(root / name, 1)


def specified(schedule, interval=CHUNK, task="perplexity", **changes):
    """A pipeline of the tiny decoder over 150 tokens, scored after the first query; changes:
    settings or fields.
    """
    settings = {
        key: value for key, value in changes.items() if key in PipelineSettings.model_fields
    }
    others = {key: value for key, value in changes.items() if key not in settings}
    made = {"schedule": schedule, "interval": interval, "task": task, "tokens": 150}
    made |= {"scoring": "after_first_query", **settings}
    return PipelineSpecification(
        pipeline=PipelineSettings(**made), model="tiny", database="db", **others
    )


def record_of(pipe, text):
    """Return the record of one sequence by one pipeline."""
    steps = pipe.steps(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def run_alone(load, texts, specification, out):
    """Run one pipeline, which `load` returns; returns the file of its records."""
    pipeline.in_turns([pipeline.run(load, texts, specification, out)])
    return out


class ExactRetriever:
    """The chunks that share most tokens with the query, place by place; ties go to the first chunk."""

    def __init__(self, documents):
        self.queries = []
        self.chunks = [
            (number, start)
            for number, text in enumerate(documents)
            for start in range(0, len(text), CHUNK)
        ]
        self.documents = [list(text) for text in documents]

    def __len__(self):
        return len(self.chunks)

    def passage(self, chunk, continuation):
        number, start = self.chunks[chunk]
        return number, self.documents[number][start : start + (1 + continuation) * CHUNK]

    def round_trip_s(self):
        return 0.0

    def search(self, queries):
        self.queries += queries
        return [self._search(query) for query in queries]

    def _search(self, query):
        asked = (
            query.tokens if query.tokens is not None else [ord(c) % 250 for c in query.text or ""]
        )
        found = {i: self.passage(i, query.continuation) for i in range(len(self))}
        distance = {
            i: len(asked) - sum(a == b for a, b in zip(asked, found[i][1], strict=False))
            for i in found
        }
        nearest = sorted(distance, key=lambda i: distance[i])[: query.k]
        rows = [
            Neighbour(i, float(distance[i]), found[i][0], found[i][1][:CHUNK], found[i][1][CHUNK:])
            for i in nearest
        ]
        return Neighbours(rows, query.nprobe or 0, {"search": 0.0})


def logits_of(
    model,
    ids,
    windows,
    documents,
    step=None,
):
    """Logits of a sequence that is read in steps of so many tokens, default: at once; the
    neighbours by window.
    """
    reader = model.open(len(ids), 256)
    source = BlockingRetrieval(RetrievalOptions(ExactRetriever(documents)), windows, reader.note)
    stops = [*range(step or len(ids), len(ids), step or 1), len(ids)]
    logits = torch.cat(
        [part for stop in stops for *_, part in read_through(reader, ids, stop, source, windows)]
    )
    return logits, [
        source.options.texts(found, windows.part(i)) for i, found in enumerate(source.results)
    ]


def cross_weights(lm):
    """Weights of cross-attention as training might leave them."""
    made = CrossWeights.fresh(lm, 0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for place, weight in made.weights.items():
            noise = torch.randn(weight.shape, generator=draw).to(weight.device)
            weight.add_(1.0 if place.endswith("gate") else 0.1 * noise)
    return made
