"""The systems that PipeRAG's items compare: a schedule with its interval, nprobe and options over
one index.

Perplexity and latency of a system come from pipelines of their own; of several with one task the
first is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import Any

from ragauge.io.jsonl import JsonObject
from ragauge.pipelines.specification import IndexFacts
from ragauge.results.cells import Cell, Cells, Table, frame, join
from ragauge.results.pipelines import IndexName, Nprobe, Options, PipelineRun, Task, pipelines
from ragauge.results.runs import Runs

KEYS = (
    "model",
    "dataset",
    "method",
    "interval",
    "nprobe",
    "database",
    "index",
    "options",
    "variant",
)
# the order of rows
KINDS = ("no_retrieval", "retrieve_once", "random", "retro", "retro_plus", "piperag")
MANY = 1 << 30  # sorts behind every nprobe
# the fields of a system, of its pipelines
SHARED = attrgetter(
    "specification.model",
    "text",
    "database",
    "settings.schedule",
    "settings.interval",
    "nprobe",
    "index",
    "options",
)


@dataclass(frozen=True, eq=False)
class System:
    """Pipelines of one model, text, database and index with the same schedule and options, and what
    they share. Besides the task they may differ in tokens, sequences, trials, threads, cores,
    server, weights, the first nprobe of `hide`, and the encoding of neighbours that stay: the
    paper's scoring encodes them in every window, its timed client once.
    """

    model: str
    # label of the text that is read: an evaluation set, or the database that it is held out of
    dataset: str
    database: str  # label of the one that neighbours come from; empty where none are read
    kind: str  # of schedule
    interval: int
    nprobe: Nprobe
    index: IndexName | None
    options: Options
    members: tuple[PipelineRun, ...]
    proxy: System | None = None  # whose perplexity it has, where it was timed and not scored

    @property
    def runs(self) -> Runs:
        return self.members[0].runs

    @cached_property
    def scored(self) -> PipelineRun | None:  # the pipeline of its perplexity
        return self.proxy.scored if self.proxy else next(iter(self._recorded("perplexity")), None)

    @cached_property
    def timed(self) -> PipelineRun | None:  # the pipeline of its latency
        return next(iter(self._recorded("generate")), None)

    @property
    def index_facts(self) -> IndexFacts | None:
        return self.members[0].specification.index

    @property
    def used(self) -> list[PipelineRun]:
        """The pipelines behind its row, those without records last."""
        ran = [p for p in (self.scored, self.timed) if p is not None]
        return [*dict.fromkeys(ran), *(p for p in self.members if p.missing)]

    @property
    def keys(self) -> JsonObject:
        return {
            "model": self.model,
            "dataset": self.dataset,
            "method": self.kind,
            "interval": self.interval
            if self.members[0].settings.schedule_class.every_window
            else "",
            "nprobe": "" if self.nprobe is None else self.nprobe,
            "database": self.database,
            "index": self.index or "",
            "options": self.options,
            "variant": " + ".join(p.name for p in self.used),
        }

    @property
    def hides_search(self) -> bool:
        return self.nprobe == "hide"

    @property
    def fixed_nprobe(self) -> int | None:
        """nprobe of every search; None without an index, or where it hides the search."""
        return self.nprobe if isinstance(self.nprobe, int) else None

    @property
    def chosen_nprobes(self) -> list[int]:
        """nprobe of each retrieval of the timed sequences."""
        return [n for record in (self.timed.records if self.timed else []) for n in record.nprobe]

    def unshown(self, shown: PipelineRun) -> str:
        """Note the other pipelines of the task of one whose number is shown."""
        notes = []
        settings = dict(shown.settings)
        for other in self._recorded(shown.settings.task):
            if other is not shown:
                changes = ", ".join(k for k, value in other.settings if value != settings[k])
                notes.append(
                    f"not shown: {other.name}" + (f", of other {changes}" if changes else "")
                )
        return join(*notes)

    def requested(self, task: Task) -> PipelineRun | None:
        """Return the first pipeline of that task that is configured and has no records."""
        return next((p for p in self.members if p.missing and p.settings.task == task), None)

    def _recorded(self, task: Task) -> list[PipelineRun]:
        return [p for p in self.members if not p.missing and p.settings.task == task]


Systems = Sequence[System]
SystemCells = Callable[[Systems], Cells]  # of a model and data set


def systems(runs: Runs) -> list[System]:
    """Return all systems, in the order of KINDS, then of interval and nprobe.

    A latency without its perplexity has that of another index of the same database, since a filled
    one finds what the database without drawn vectors has.
    """
    members: dict[tuple[Any, ...], list[PipelineRun]] = {}
    for pipeline in pipelines(runs):
        members.setdefault(SHARED(pipeline), []).append(pipeline)
    all_systems = [System(*(*key, tuple(alike))) for key, alike in members.items()]

    def order(s: System) -> tuple[Any, ...]:
        kind = KINDS.index(s.kind) if s.kind in KINDS else len(KINDS)
        index = (s.index.label, s.index.filled or 0) if s.index else ("", 0)
        nprobe = s.fixed_nprobe or MANY
        return s.model, s.dataset, kind, str(s.options), s.database, index, s.interval, nprobe

    return sorted((replace(s, proxy=_proxy(s, all_systems)) for s in all_systems), key=order)


def plain(group: Systems) -> list[System]:
    """Return the systems of a model and text that have no option but those that all of it have,
    which are the model's own.
    """
    # the others have no form
    reading = [set(s.options) for s in group if s.kind != "no_retrieval"]
    common = set.intersection(*reading) if reading else {o for s in group for o in s.options}
    return [s for s in group if set(s.options) <= common]


def in_groups(runs: Runs, cells: SystemCells) -> list[Cell]:
    """Return the cells of the systems of each model and data set."""
    groups = groupby(systems(runs), attrgetter("model", "dataset"))
    return [cell for _, group in groups for cell in cells(list(group))]


def grouped(runs: Runs, cells: SystemCells, printed: Iterable[Cell] = ()) -> Table:
    """Return a table of the cells of the systems of each model and data set, then of `printed`
    ones.
    """
    return in_columns([*in_groups(runs, cells), *printed])


def in_columns(cells: Sequence[Cell]) -> Table:
    """Return a table of cells of systems, with a column of databases only where a text has
    neighbours from several.
    """
    pairs = {
        (cell.keys["dataset"], database) for cell in cells if (database := cell.keys["database"])
    }
    is_one = len(pairs) == len({dataset for dataset, _ in pairs})
    return frame([key for key in KEYS if key != "database" or not is_one], cells)


def _proxy(system: System, systems: Systems) -> System | None:
    """Return the system whose perplexity stands beside a latency without one.

    It was scored, over any index of the same database. For nprobe hide, which depends on the clock,
    it has the largest nprobe that is at most the median one chosen.
    """
    if system.scored is not None or system.timed is None:
        return None
    schedule = attrgetter("model", "dataset", "database", "kind", "interval", "options")
    alike = [s for s in systems if s.scored is not None and schedule(s) == schedule(system)]
    alike.sort(key=lambda s: (s.index != system.index, bool(s.index and s.index.filled)))
    if not system.hides_search:
        return next((s for s in alike if s.nprobe == system.nprobe), None)
    if not system.chosen_nprobes:
        return None
    most = median(system.chosen_nprobes)
    nprobes = {s: s.fixed_nprobe for s in alike if s.fixed_nprobe}
    return min(nprobes, key=lambda s: (nprobes[s] > most, abs(nprobes[s] - most)), default=None)
