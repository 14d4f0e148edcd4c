"""The report of a run: one self-contained HTML page, made from its records and its rendered items
alone.
"""
