"""The verbs of the command line, one file per verb.

A module here has a docstring, whose first line is the help text, `add_arguments(parser)` and `run(args)`. It imports
what it needs inside `run`, so that `ragauge --help` answers at once; `run` returns an exit code other than 0, or
nothing. `_options.py` holds what verbs share, so that one thing has one spelling (docs/command-line.md), `_parser.py`
the group that the help shows a verb in.
"""

from ragauge.verbs._parser import Parser, grouped, leaves

__all__ = ["Parser", "grouped", "leaves"]
