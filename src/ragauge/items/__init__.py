"""Tables and figures of the papers: one file an item, with `table(runs)` and `draw(table)`; they see results only."""
