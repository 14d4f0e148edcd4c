"""What a run of the miniature must not have: a failed question, a text that is cut where the paper
cuts none, an empty cell whose inputs are planned, a cell that shows another quantity than the one
that was planned.

Nothing is excused for a busy machine: the overlay allows other load, so that every time is there.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.config.experiment import Answers, Config
from ragauge.config.plan.part import Paths
from ragauge.config.plan.plan import Plan
from ragauge.pipelines.settings import PipelineSettings
from ragauge.results.cells import CellStatus

ANSWERING = "of the answering run"  # what the frontier shows where nothing was timed
NO_PIPELINE = "not run: no pipeline of this experiment measures its"
RECORDED = "offline_s", "cache_bytes"  # the answering run's in any case
Row = Mapping[str, str]  # a line of an item's table


@dataclass(frozen=True)
class Run:
    """An experiment and the folder that it ran in."""

    config: Config
    folder: Path
    part: bool = False  # of the experiment: what its items read is made, and nothing else

    @cached_property
    def made(self) -> set[str] | None:
        """The files of records that its items read; None: all are made."""
        items = Plan(self.config).items
        read = (paths for item in self.config.item_names() for paths in items.inputs(item).values())
        return {path for paths in read for path in paths} if self.part else None

    @cached_property
    def timed(self) -> set[tuple[str, str]]:
        """The pairs of data set and model that are timed."""
        return set(self.config.measured("latency"))

    def records(self, place: str) -> list[dict[str, Any] | None]:
        """The records of a file that is made; [None] where there is none."""
        if self.made is not None and place not in self.made:
            return []
        path = self.folder / place
        lines = path.read_bytes().splitlines() if path.is_file() else []
        return [json.loads(line) for line in lines] or [None]

    def rows(self, item: str) -> list[Row] | None:
        path = self.folder / Paths(self.config.run).reports / f"{item}.csv"
        if not path.is_file():
            return None
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


@dataclass(frozen=True)
class Empty:
    """Cells that stay empty in the papers' own experiment as well."""

    item: str  # a name, or the pattern of several
    note: str  # how the note of such a cell begins
    why: str
    is_so: Callable[[Run, Row], bool] = lambda run, row: True  # whether the plan bears it out
    by_chance: bool = False  # of the measured numbers: a run may have no such cell


def _untimed(run: Run, row: Row) -> bool:
    protocol = run.config.protocol(row["dataset"])
    timed = protocol and (row["dataset"], row["model"]) in run.timed
    return not (timed and row["variant"] in protocol.methods)


def _unjudged(run: Run, row: Row) -> bool:
    return Answers(row["dataset"], row["model"], row["variant"]) not in run.config.judged()


def _behind_a_server(run: Run, row: Row) -> bool:
    return run.config.models[row["model"]].served is not None


def _measured_once(run: Run, row: Row) -> bool:
    """Whether no pipeline does the other task of a row's pipeline: those that are only scored, or
    only timed.
    """
    entry = run.config.pipelines.get(row["variant"])
    if entry is None:
        return False
    lists = (
        {"nprobe", "first_nprobe"} if entry.chooses_nprobe else set()
    )  # S3's text is scored at the number nearest to its own
    others = [other for other in run.config.pipelines.values() if other.task != entry.task]
    return not any(_system(other, lists) == _system(entry, lists) for other in others)


def _system(entry: PipelineSettings, but: set[str]) -> dict[str, Any]:
    return entry.model_dump(exclude={"task", "tokens", "limit", "trials", *but})


def _apart(run: Run, row: Row) -> bool:
    """Whether no pipelines of a row's model and index are both scored and timed."""
    entries = [
        e
        for e in run.config.pipelines.values()
        if (e.model, e.index) == (row["model"], row["index"])
    ]
    return len({entry.task for entry in entries}) < 2


def _ready(run: Run, row: Row) -> bool:
    protocol = run.config.protocol(row["dataset"])
    return protocol is None or protocol.documents == "ready"


FRONTIERS = "frontier", "reuse_frontier"
UNTIMED_SYSTEM = "smaller databases and near-duplicates are scored, not timed"
APART = "over an index that is not timed, or with weights that are not scored, nothing is both"
UNSCORED_SYSTEM = "random weights of RETRO's sizes are timed, not scored"
EMPTY = (
    Empty("cfic_table_6", "not timed", "two models are timed on two data sets", _untimed),
    Empty("cfic_table_8", "not timed", "two models are timed on two data sets", _untimed),
    Empty("cfic_table_7", "not judged", "three methods are judged", _unjudged),
    Empty("piperag_*", "not run: no baseline and PipeRAG", APART, _apart),
    Empty("piperag_*", f"{NO_PIPELINE} latency", UNTIMED_SYSTEM, _measured_once),
    Empty("piperag_*", f"{NO_PIPELINE} perplexity", UNSCORED_SYSTEM, _measured_once),
    Empty(
        "piperag_figure_10",
        "not run: one of the two was not scored",
        UNSCORED_SYSTEM,
        _measured_once,
    ),
    Empty(
        "piperag_*",
        "no PipeRAG is at once",
        "a claim that random models need not bear out",
        by_chance=True,
    ),
    *(
        Empty(item, "not timed", "a latency protocol times part of the methods", _untimed)
        for item in FRONTIERS
    ),
    Empty(
        "frontier", "the shape of", "the shapes of served models are not known", _behind_a_server
    ),
    Empty(
        "frontier",
        "the configuration has no price",
        "prices of served models are the user's",
        _behind_a_server,
    ),
    Empty(
        "superposition_table_5",
        "the gold document was never kept",
        "random models keep it by chance",
        by_chance=True,
    ),
    Empty(
        "documents_reuse",
        "not timed: the latency protocol ran without",
        "documents are ready, never cold",
        _ready,
    ),
)


def faults(config: Config, folder: Path, part: bool = False) -> list[str]:
    """One line a fault of the run of `config` in a folder; none where all is well.

    Args:
        part: only what the items of `config` read was made.
    """
    run = Run(config, folder, part)
    pipelines = (
        Paths(config.run).pipeline.format(pipeline=label) + ".jsonl" for label in config.pipelines
    )
    return [
        *_answer_faults(run),
        *(fault for one in pipelines for fault in _failed(run, one)),
        *_item_faults(run),
    ]


def empty(config: Config, folder: Path) -> dict[Empty, int]:
    """How many cells of the run of `config` stay empty in the papers' own experiment as well, by
    why they do.
    """
    run = Run(config, folder)
    excused = [
        _excuse(run, item, row) for item in config.item_names() for row in run.rows(item) or ()
    ]
    return {one: excused.count(one) for one in EMPTY}


def _answer_faults(run: Run) -> Iterator[str]:
    pattern = Paths(run.config.run).answers
    for job in run.config.answers():
        place = pattern.format(dataset=job.dataset, model=job.model, variant=job.variant) + ".jsonl"
        # else LongBench's own protocol cuts it
        whole = "max_length" not in run.config.datasets[job.dataset].options
        yield from _failed(run, place)
        for record in run.records(place) if whole else ():
            if record and record["status"] == "ok" and record.get("truncated"):
                yield f"{place}: {record['key']}: {record['truncated']} tokens were cut out"


def _failed(run: Run, place: str) -> Iterator[str]:
    for record in run.records(place):
        if record is None or record["status"] != "ok":
            yield f"{place}: {record['reason'] if record else 'no record'}"


def _item_faults(run: Run) -> Iterator[str]:
    for item in run.config.item_names():
        rows = run.rows(item)
        if rows is None:
            yield f"{item}: was not rendered"
        else:
            found = {problem for row in rows if (problem := _problem(run, item, row))}
            yield from sorted(f"{item}: {problem}" for problem in found)


def _problem(run: Run, item: str, row: Row) -> str:
    """What is wrong with a cell; nothing of one that is empty for a reason of the papers' own plan."""
    lost = row["status"] == CellStatus.COULD_NOT_RUN and not _excuse(run, item, row)
    replaced = ANSWERING in row["note"] and _has_protocol(run, item, row)
    keys = ", ".join(
        row[key] for key in ("model", "dataset", "method", "variant", "quantity") if row.get(key)
    )
    return f"{keys}: {row['note'] or 'empty'}" if lost or replaced else ""


def _has_protocol(run: Run, item: str, row: Row) -> bool:
    """Whether the latency protocol has the time of a cell: off the frontiers, where it times all
    that are compared.
    """
    protocol = run.config.protocol(row["dataset"])
    if (
        protocol is None
        or (row["dataset"], row["model"]) not in run.timed
        or row["quantity"] in RECORDED
    ):
        return False
    place = row["dataset"], row["model"]
    compared = {
        one["variant"] for one in run.rows(item) or () if (one["dataset"], one["model"]) == place
    }
    return item in FRONTIERS or compared <= set(protocol.methods)


def _excuse(run: Run, item: str, row: Row) -> Empty | None:
    """Why the cell stays empty in the papers' own experiment as well; None of a cell that does not."""
    if row["status"] != CellStatus.COULD_NOT_RUN:
        return None
    alike = (one for one in EMPTY if fnmatch(item, one.item) and row["note"].startswith(one.note))
    return next((one for one in alike if one.is_so(run, row)), None)
