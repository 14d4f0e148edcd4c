"""Tables and figures of the papers: one file an item, with `table(runs)` and `draw(table)`; they see results only.

A table has one line for each combination of its `KEYS` and `quantity`.
"""
