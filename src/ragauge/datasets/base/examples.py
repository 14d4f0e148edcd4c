"""Files of examples, checked and in their final order, which `ragauge fetch --dataset` writes for
any run to read.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter

from ragauge.datasets.base.dataset import Example
from ragauge.errors import UserError, validating
from ragauge.io.files import write_file
from ragauge.io.jsonl import json_lines, read_jsonl

_EXAMPLE = TypeAdapter(Example)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write one JSON line per example, atomically."""
    rows = [asdict(example) for example in examples]
    rows = [{key: value for key, value in row.items() if key != "trace" or value} for row in rows]
    write_file(path, json_lines(rows))


def read_examples(path: Path) -> list[Example]:
    """Read the examples of a file that `write_examples` made.

    Raises:
        UserError: no examples, or a line that is none.
    """
    examples = []
    for number, record in read_jsonl(path):
        with validating(f"{path}:{number}"):
            examples.append(_EXAMPLE.validate_json(json.dumps(record), strict=True))
    if not examples:
        raise UserError(f"{path}: holds no questions")
    return examples


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
