"""Reports: `items/` has one file a table or figure, `figures/` draws and writes them, `page/` is
the HTML page.

What a number is, and its interval, is computed in `results`.
"""
