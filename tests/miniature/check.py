"""What a run of the miniature must not have: a failed question, a text that is cut where the paper
cuts none, an empty cell whose inputs are planned, a cell that shows another quantity than the one
that was planned.

Nothing is excused for a busy machine: the overlay allows other load, so that every time is there.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from ragauge.config.experiment import AnswerJob, Config
from ragauge.config.plan.part import RunPaths
from ragauge.config.plan.plan import Plan
from ragauge.results.cells import CellStatus

ANSWERING = "of the answering run"  # what the frontier shows where nothing was timed
RECORDED = "preparation_s", "cache_bytes"  # the answering run's, of what was not timed
FRONTIERS = "frontier", "reuse_frontier"
Row = Mapping[str, str]  # a line of an item's table


@dataclass(frozen=True)
class Run:
    """An experiment and the folder that it ran in."""

    config: Config
    folder: Path
    part: bool = False  # of the experiment: what its items read is made, and nothing else

    @cached_property
    def made(self):
        """The files of records that its items read; None: all are made."""
        items = Plan(self.config).items
        read = (paths for item in self.config.item_names() for paths in items.inputs(item).values())
        return {path for paths in read for path in paths} if self.part else None

    @cached_property
    def timed(self):
        """The pairs of data set and model that are timed."""
        return set(self.config.measured("latency"))

    def records(self, place):
        """The records of a file that is made; [None] where there is none."""
        if self.made is not None and place not in self.made:
            return []
        path = self.folder / place
        lines = path.read_bytes().splitlines() if path.is_file() else []
        return [json.loads(line) for line in lines] or [None]

    def rows(self, item):
        path = self.folder / RunPaths(self.config.run).reports / f"{item}.csv"
        if not path.is_file():
            return None
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


# Items, and how the notes of cells begin that stay empty in the papers' own experiment as well.
EMPTY = (
    ("cfic_table_6", "not timed"),  # two models are timed on two data sets
    ("cfic_table_8", "not timed"),
    ("cfic_table_7", "not judged"),  # three methods are judged
    # over an index that is not timed, or with weights that are not scored, nothing is both
    ("piperag_*", "not run: no baseline and PipeRAG"),
    # smaller databases and near-duplicates are scored, RETRO's sizes are timed
    ("piperag_*", "not run: no pipeline of this experiment measures its"),
    ("piperag_figure_10", "not run: one of the two was not scored"),
    ("piperag_*", "no PipeRAG is at once"),  # random models need not bear a claim out
    ("frontier", "not timed"),  # a latency protocol times part of the methods
    ("reuse_frontier", "not timed"),
    ("frontier", "not answered in this state"),  # no run of answers caches a prompt's beginning
    ("frontier", "the shape of"),  # served models have neither a shape nor a price
    ("frontier", "the configuration has no price"),
    ("superposition_table_5", "the gold document was never kept"),
    # a rule that reads nothing may find every gold document of one or two questions
    ("superposition_table_?", "no question of this part"),
    ("documents_reuse", "not timed: the latency protocol ran without"),  # documents are ready
)


def faults(config, folder, part=False):
    """One line a fault of the run of `config` in a folder; none where all is well.

    Args:
        part: only what the items of `config` read was made.
    """
    run = Run(config, folder, part)
    pipelines = (
        RunPaths(config.run).pipeline.format(pipeline=label) + ".jsonl"
        for label in config.pipelines
    )
    return [
        *_answer_faults(run),
        *(fault for place in pipelines for fault in _failed(run, place)),
        *_item_faults(run),
    ]


def _answer_faults(run):
    pattern = RunPaths(run.config.run).answers
    for job in run.config.answers():
        place = pattern.format(dataset=job.dataset, model=job.model, variant=job.variant) + ".jsonl"
        # else LongBench's own protocol cuts it
        whole = "max_length" not in run.config.datasets[job.dataset].options
        yield from _failed(run, place)
        for record in run.records(place) if whole else ():
            if record and record["status"] == "ok" and record.get("truncated"):
                yield f"{place}: {record['key']}: {record['truncated']} tokens were cut out"


def _failed(run, place):
    for record in run.records(place):
        if record is None or record["status"] != "ok":
            yield f"{place}: {record['reason'] if record else 'no record'}"


def _item_faults(run):
    for item in run.config.item_names():
        rows = run.rows(item)
        if rows is None:
            yield f"{item}: was not rendered"
        else:
            found = {problem for row in rows if (problem := _problem(run, item, row))}
            yield from sorted(f"{item}: {problem}" for problem in found)


def _problem(run, item, row):
    """What is wrong with a cell; nothing where the papers' own plan leaves it empty."""
    lost = row["status"] == CellStatus.COULD_NOT_RUN and not _stays_empty(run, item, row)
    replaced = ANSWERING in row["note"] and _has_protocol(run, item, row)
    keys = ", ".join(
        row[key] for key in ("model", "dataset", "method", "variant", "quantity") if row.get(key)
    )
    return f"{keys}: {row['note'] or 'empty'}" if lost or replaced else ""


def _has_protocol(run, item, row):
    """Whether the latency protocol has the time of a cell; off the frontiers it has those of
    variants that are all timed.
    """
    place = row["dataset"], row["model"]
    protocol = run.config.protocol(row["dataset"])
    if protocol is None or place not in run.timed or row["quantity"] in RECORDED:
        return False
    compared = {
        other["variant"]
        for other in run.rows(item) or ()
        if (other["dataset"], other["model"]) == place
    }
    return item in FRONTIERS or compared <= set(protocol.methods)


def _stays_empty(run, item, row):
    """Whether a cell may be empty: its note is one of `EMPTY`, and the plan bears it out."""
    note = row["note"]
    is_known = any(fnmatch(item, name) and note.startswith(start) for name, start in EMPTY)
    if note.startswith("not judged"):
        answers = AnswerJob(row["dataset"], row["model"], row["variant"])
        return is_known and answers not in run.config.judged()
    if note.startswith("not timed") and item != "documents_reuse":
        return is_known and not _is_timed(run, row)
    if note.startswith(("not run: no pipeline", "not run: one of the two")):
        return is_known and not _is_measured_twice(run, row)
    return is_known


def _is_timed(run, row):
    protocol = run.config.protocol(row["dataset"])
    timed = (row["dataset"], row["model"]) in run.timed
    return bool(timed and protocol and row["variant"] in protocol.methods)


def _is_measured_twice(run, row):
    """Whether a row's pipeline is both scored and timed."""
    entry = run.config.pipelines.get(row["variant"])
    if entry is None:
        return True
    # S3's text is scored at the number of lists nearest to its own
    lists = {"nprobe", "first_nprobe"} if entry.hides_search else set()
    task = {"task", "tokens", "limit", "trials"}
    others = [other for other in run.config.pipelines.values() if other.task != entry.task]
    mine = entry.model_dump(exclude=task | lists)
    return any(other.model_dump(exclude=task | lists) == mine for other in others)
