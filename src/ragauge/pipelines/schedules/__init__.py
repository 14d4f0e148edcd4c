"""Schedules, one file each: when the database is queried, and when generation waits for it.

What schedules share belongs in `base.py`; how neighbours are read belongs to `modes`.
"""
