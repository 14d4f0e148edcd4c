"""Files of examples, checked and in their final order, which `ragauge fetch --dataset` writes for
any run to read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ragauge.datasets.base.dataset import Example, TraceEntry, check
from ragauge.errors import UserError, first_problem
from ragauge.io.files import write_file
from ragauge.io.jsonl import field, number, read_jsonl

_EXAMPLE = TypeAdapter(Example)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write one JSON line per example, atomically."""
    rows = [asdict(example) for example in examples]
    rows = [{key: value for key, value in row.items() if key != "trace" or value} for row in rows]
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def read_examples(path: Path) -> list[Example]:
    """Read the examples of a file that `write_examples` made.

    Raises:
        UserError: no examples, or a line that is none.
    """
    examples = [_example(record, f"{path}:{number}") for number, record in read_jsonl(path)]
    if not examples:
        raise UserError(f"{path}: holds no questions")
    return examples


def _example(record: Mapping[str, Any], place: str) -> Example:
    try:
        example = _EXAMPLE.validate_json(json.dumps(record), strict=True)
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}") from None
    check(example, place, unlabelled=True)  # as it was written, when its data set was checked
    return example


def trace_entry(
    record: Mapping[str, Any],
    place: str,
    arrival: str = "arrival_s",
    length: str = "new_tokens",
    unit_s: float = 1.0,
) -> TraceEntry:
    """Return the entry of a record whose keys `arrival`, in units of `unit_s`, and `length` say
    when it arrives and how long its response is.

    Raises:
        UserError: a value is of another type or out of range.
    """
    arrival_s = unit_s * number(record, arrival, place)
    new_tokens = None if record.get(length) is None else number(record, length, place, int, 1)
    conversation = record.get("conversation") and field(record, "conversation", str, place)
    return TraceEntry(arrival_s, new_tokens, conversation, bool(record.get("is_simulated")))


def as_turn(example: Example, history: str) -> tuple[Example, str]:
    """Return the example as a turn of a conversation, its history in front of the question, and the
    history of the next turn, which has its known answer.
    """
    turn = replace(example, question=history + example.question)
    answer = "".join(f"\nAnswer: {text}" for text in example.answers[:1])
    return turn, f"{turn.question}{answer}\nQuestion: "


def conversations(examples: Sequence[Example], turns: int) -> list[Example]:
    """Return successive examples as conversations of so many turns; those left over are left out.

    Raises:
        UserError: there are fewer examples than turns.
    """
    if len(examples) < turns:
        raise UserError(f"turns: {turns}, but there are {len(examples)} questions")
    told = list[Example]()
    history = ""
    for example in examples[: len(examples) // turns * turns]:
        turn, history = as_turn(example, history if len(told) % turns else "")
        told.append(turn)
    return told
