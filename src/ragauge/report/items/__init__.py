"""Tables and figures, one file an item: `table(runs)` computes the rows from a run's results,
`draw(table)` the figure.

A table has one line for each combination of its `KEYS` and `quantity`.
"""
