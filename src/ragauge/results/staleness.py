"""The comparisons of stale with fresh queries of a run (`ragauge piperag staleness`)."""

from dataclasses import dataclass

from ragauge.errors import validating
from ragauge.pipelines.retrieval.reports import StalenessReport
from ragauge.pipelines.retrieval.settings import StalenessSettings
from ragauge.results.pipelines import IndexName
from ragauge.results.runs import Runs


@dataclass(frozen=True)
class StalenessEntry:
    """One entry of the section `staleness`, with its report where it has run."""

    name: str
    encoder: str
    database: str  # label
    text: str  # label of what is read: an evaluation set, or the database that it is held out of
    index: IndexName
    report: StalenessReport | None


def comparisons(runs: Runs) -> list[StalenessEntry]:
    """Return the comparisons with a report, then those of the configuration that have none."""
    by_name = {}
    for path in sorted((runs.folder / "staleness").glob("*.json")):
        with validating(f"{path}: not a comparison of stale queries"):
            report = StalenessReport.model_validate_json(path.read_bytes())
        by_name[path.stem] = _entry(path.stem, report)
    for name, settings in runs.config.staleness.items():
        by_name.setdefault(name, _entry(name, settings))
    return list(by_name.values())


def _entry(name: str, source: StalenessReport | StalenessSettings) -> StalenessEntry:
    report = source if isinstance(source, StalenessReport) else None
    index = IndexName(source.index, report.filled if report else None)
    text = source.evaluation or source.database
    return StalenessEntry(name, source.encoder, source.database, text, index, report)
