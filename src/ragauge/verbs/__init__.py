"""Verbs of the command line beyond those of an answer's life: the file is the verb.

A module here has a docstring, whose first line is the help text, `add_arguments(parser)` and `run(args)`. It imports
what it needs inside `run`, so that `ragauge --help` answers at once.
"""
