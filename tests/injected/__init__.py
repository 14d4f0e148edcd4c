"""Faults on purpose: writers and readers of files, disturbed at every operation, on inputs of milliseconds.

    PYTHONPATH=tests python -m injected [--share 0.1] [--write]     or: make faults

`disk.c` counts what a process does to the files of one folder and disturbs the operation of a chosen number;
`children` runs work in a forked process that is disturbed so; `writers` are what is disturbed; `kinds` are the ways,
and `__main__` runs all of them and prints the table of `docs/reliability.md`.
"""
