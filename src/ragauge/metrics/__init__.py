"""Metrics: one file each turns a record into a number; `base` normalises and scores.

Intervals and tests over many records belong to `results`.
"""
