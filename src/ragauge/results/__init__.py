"""What a run left behind, as types, and what is computed from it: the names that items are written with.

A `Variant` has the records of one method on one data set with one model; a `Cell` is one number of a table, measured or
published. The modules `timing`, `sequences` and `materials` have what few items need.
"""

from ragauge.results.cells import (
    OTHER_MODEL,
    Cell,
    CellSource,
    Measure,
    Status,
    Table,
    frame,
    join,
    mean,
    merge,
    noted,
)
from ragauge.results.costs import cost, costs, critical_path_cycles, online_cycles, paper_cycles, speedup
from ragauge.results.measures import (
    FLOOR,
    REFERENCES,
    difference,
    evidence_quality,
    find,
    naive,
    quality,
    scored,
    standard,
)
from ragauge.results.provenance import machine
from ragauge.results.publications import (
    CYCLES,
    GENERATORS,
    LONGBENCH,
    paper_model,
    predicted,
    published,
    read_csv,
)
from ragauge.results.runs import ELSEWHERE, RANKED, Runs, Variant, defaults, identities, known_names

__all__ = [
    "CYCLES",
    "ELSEWHERE",
    "FLOOR",
    "GENERATORS",
    "LONGBENCH",
    "OTHER_MODEL",
    "RANKED",
    "REFERENCES",
    "Cell",
    "CellSource",
    "Measure",
    "Runs",
    "Status",
    "Table",
    "Variant",
    "cost",
    "costs",
    "critical_path_cycles",
    "defaults",
    "difference",
    "evidence_quality",
    "find",
    "frame",
    "identities",
    "join",
    "known_names",
    "machine",
    "mean",
    "merge",
    "naive",
    "noted",
    "online_cycles",
    "paper_cycles",
    "paper_model",
    "predicted",
    "published",
    "quality",
    "read_csv",
    "scored",
    "speedup",
    "standard",
]
