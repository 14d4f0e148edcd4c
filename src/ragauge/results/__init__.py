"""Results: the files of a run read back as types, with statistics, published numbers and verdicts.

Nothing here runs a model or draws; tables and figures belong to `report`.
"""
