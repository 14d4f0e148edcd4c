"""A trace of requests with their arrival times, in Mooncake's published format or with questions
and documents.

Mooncake (Qin et al., FAST 2025) publishes arrivals, lengths and hashes of blocks of tokens, and no
text: the last block of a prompt is what is left of its length, and a hash is of a block and all
before it. Here a block becomes a document of random words, the same for the same hash, so that
requests share what they shared in use.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.datasets.base.dataset import (
    SEARCH_RESULTS,
    Dataset,
    Document,
    Example,
    TraceEntry,
)
from ragauge.datasets.base.examples import as_turn
from ragauge.errors import UserError
from ragauge.io.jsonl import field, number, objects
from ragauge.options import PositiveInt

# tokens that a prompt has around a document's text, in SmolLM2's and Qwen's vocabularies
HEADING = 8
WORDS = (  # each one token of common vocabularies, with the blank before it
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father"
)


@dataclass(frozen=True)
class Trace(Dataset):
    """Requests in the order of their arrival; `answer` is known in a format of questions alone, and
    there may be none.

    A turn of a conversation has the questions and recorded answers of those before it in front of
    its question.
    """

    preamble = SEARCH_RESULTS
    metrics = ("contains_answer", "f1")
    unlabelled = True
    block_tokens: PositiveInt = 512  # of a hash in Mooncake's format

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        is_simulated = "hash_ids" in record
        arrival, unit_s, length = (
            ("timestamp", 1e-3, "output_length") if is_simulated else ("time", 1.0, "new_tokens")
        )
        arrival_s = unit_s * number(record, arrival, place)
        new_tokens = None if record.get(length) is None else number(record, length, place, int, 1)
        conversation = record.get("conversation") and field(record, "conversation", str, place)
        question = "What follows?"
        answer: tuple[str, ...] = ()
        if is_simulated:
            documents = list(self._blocks(record, place))
        else:
            question = field(record, "question", str, place)
            if record.get("answer") is not None:
                answer = (field(record, "answer", str, place),)
            documents = []
            for row, at in objects(record, "documents", place):
                title = field(row, "title", str, at) if row.get("title") else ""
                documents.append(Document(title, field(row, "text", str, at)))
        return Example(
            place.rpartition(":")[2],
            question,
            tuple(documents),
            answer,
            gold=(),
            trace=TraceEntry(arrival_s, new_tokens, conversation, is_simulated),
        )

    def read(self, path: Path) -> Iterator[Example]:
        last_s = 0.0
        history = dict[str, str]()
        for example in super().read(path):
            assert example.trace
            arrival_s = example.trace.arrival_s
            conversation = example.trace.conversation
            if arrival_s < last_s:
                raise UserError(
                    f"{path}:{example.key}: arrives at {arrival_s:g} s, before the line above, "
                    f"at {last_s:g} s; sort the lines by time"
                )
            last_s = arrival_s
            if conversation:
                example, history[conversation] = as_turn(example, history.get(conversation, ""))
            yield example

    def _blocks(self, record: Mapping[str, Any], place: str) -> Iterator[Document]:
        """Yield a document for each block of the prompt, of its length in tokens."""
        length = number(record, "input_length", place, int, 1)
        size = self.block_tokens
        hashes = field(record, "hash_ids", list, place)
        blocks = -(-length // size)
        if len(hashes) != blocks or any(type(number) is not int for number in hashes):
            raise UserError(
                f"{place}: field 'hash_ids' must be {blocks} integers, as 'input_length' is {length} "
                f"and a block {size} tokens; it has {len(hashes)} values"
            )
        for i, number_of_block in enumerate(hashes):
            words = max(1, min(size, length - i * size) - HEADING)
            yield Document(
                "Block",
                " ".join(
                    random.Random(f"{self.seed} {number_of_block}").choices(WORDS.split(), k=words)
                ),
            )
