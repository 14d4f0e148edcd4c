"""What `ragauge piperag staleness` wrote: how alike the chunks are that stale and fresh queries
find.
"""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ValidationError, model_validator

from ragauge.errors import UserError, first_problem
from ragauge.results.pipelines import IndexName
from ragauge.results.runs import Runs


class LikenessRecord(BaseModel):
    cosine: list[float | None]  # of the nearest chunks of the fresh and each stale query
    chunks: list[int]  # the nearest of the fresh query, then of each stale one; below zero: none


class Report(BaseModel):
    encoder: str  # compares the chunks
    database: str  # label
    index: str
    # label of the set that was read; None: the database's held-out text
    evaluation: str | None = None
    nprobe: int
    filled: int | None = None
    texts: int
    tokens: int  # of a text
    stale_tokens: list[int]
    queries: list[LikenessRecord]
    provenance: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        size = len(self.stale_tokens)
        if not size or any(
            len(q.cosine) != size or len(q.chunks) != size + 1 for q in self.queries
        ):
            raise ValueError("queries without a cosine for each staleness")
        return self


@dataclass(frozen=True)
class StalenessEntry:
    """One entry of the section `staleness`, with its report where it has run."""

    name: str
    encoder: str
    database: str  # label
    text: str  # label of what is read: an evaluation set, or the database that it is held out of
    index: IndexName
    report: Report | None


def comparisons(runs: Runs) -> list[StalenessEntry]:
    """The comparisons with a report, then those of the configuration that have none."""
    entries = runs.config.staleness
    by_name = {}
    for path in sorted((runs.folder / "staleness").glob("*.json")):
        try:
            report = Report.model_validate_json(path.read_bytes())
            name = path.stem
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise UserError(
                f"{path}: not a comparison of stale queries: {first_problem(error)}"
            ) from error
        index = IndexName(report.index, report.filled)
        text = report.evaluation or report.database
        by_name[name] = StalenessEntry(name, report.encoder, report.database, text, index, report)
    for name, entry in entries.items():
        text = entry.evaluation or entry.database
        index = IndexName(entry.index)
        by_name.setdefault(
            name, StalenessEntry(name, entry.encoder, entry.database, text, index, None)
        )
    return list(by_name.values())
