"""The verbs of the command line, one file each.

A module here has a docstring, whose first line is the help text, `add_arguments(parser)` and `run(args)`. It imports
what it needs inside `run`, so that `ragauge --help` answers at once; `run` returns an exit code other than 0, or
nothing. `_options.py` holds the options that verbs share, so that one thing has one spelling (docs/command-line.md),
`_parser.py` the parsers and the groups of the help.
"""

from ragauge.verbs._parser import command_parser

__all__ = ["command_parser"]
