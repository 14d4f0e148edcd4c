"""What a run left behind, as types, and what is computed from it: the names that items are written with.

A `Variant` has the records of one method on one data set with one model; a `Cell` is one number of a table, measured or
published.
"""

from ragauge.results.cells import Cell, CellSource, Measure, Table, frame, join, mean, merge, noted
from ragauge.results.measures import difference, evidence_quality, find, naive, quality, scored, standard
from ragauge.results.publications import LONGBENCH, published, read_csv
from ragauge.results.runs import Runs, Variant

__all__ = ["LONGBENCH", "Cell", "CellSource", "Measure", "Runs", "Table", "Variant"]
__all__ += ["difference", "evidence_quality", "find", "frame", "join", "mean", "merge", "naive", "noted", "published"]
__all__ += ["quality", "read_csv", "scored", "standard"]
