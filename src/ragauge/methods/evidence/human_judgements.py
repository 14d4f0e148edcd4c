"""People's judgements of evidence (CFIC, Table 7): a CSV with a line a question, variant and
person.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from ragauge.errors import UserError, first_problem


class HumanJudgement(BaseModel, extra="forbid", frozen=True):
    """A person's judgement of the evidence that a variant found for a question."""

    dataset: str
    model: str
    variant: str
    key: str  # of the question
    person: str
    label: Literal["supported", "partially_supported", "not_supported"]
    faithful: Literal["yes", "no"]


def read_human_judgements(path: Path) -> Mapping[str, HumanJudgement]:
    """Read the judgements by the places where they stand.

    Raises:
        UserError: no CSV, or a line is none or double.
    """
    judgements = {}
    seen = set()
    where = f"human_judgements: {path}"
    place = where
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            for row in reader:
                place = f"{where}:{reader.line_num}"
                fields = {str(name): row[name] for name in row}
                judgement = HumanJudgement.model_validate(fields)
                judgements[place] = judgement
                subject = tuple(judgement.model_dump(exclude={"label", "faithful"}).values())
                if subject in seen:
                    raise UserError(f"{place}: {judgement.person} judges the same evidence twice")
                seen.add(subject)
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{place}: cannot be read as CSV: {error}") from None
    return judgements
