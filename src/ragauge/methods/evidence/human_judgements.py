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
    """How one person judges the evidence that a variant found for a question; labels as in the
    configuration.
    """

    dataset: str
    model: str
    variant: str
    key: str  # of the question
    person: str
    label: Literal["supported", "partially_supported", "not_supported"]
    faithful: Literal["yes", "no"]


def read_human_judgements(path: Path) -> Mapping[str, HumanJudgement]:
    """Read the judgements by the places where they stand. Raises UserError: no CSV, or a line is
    none or double.
    """
    judgements = dict[str, HumanJudgement]()
    seen = set[tuple[str, ...]]()
    place = where = f"human_judgements: {path}"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in (reader := csv.DictReader(file)):
                place = f"{where}:{reader.line_num}"
                one = judgements[place] = HumanJudgement.model_validate(
                    {str(name): row[name] for name in row}
                )
                if (what := (one.dataset, one.model, one.variant, one.key, one.person)) in seen:
                    raise UserError(f"{place}: {one.person} judges the same evidence twice")
                seen.add(what)
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{place}: cannot be read as CSV: {error}") from None
    return judgements
