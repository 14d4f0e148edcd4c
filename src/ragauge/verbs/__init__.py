"""The verbs of the command line, one file per verb.

A module here has a docstring, whose first line is the help text, `add_arguments(parser)` and `run(args)`. It imports
what it needs inside `run`, so that `ragauge --help` answers at once. `_options.py` holds what verbs share.
"""
