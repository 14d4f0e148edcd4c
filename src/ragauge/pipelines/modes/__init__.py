"""Attention modes, how a decoder reads retrieved neighbours: one file a mode, found by its name.

`<name>.py` describes a mode and imports no torch; `_<name>.py` next to it reads, trains and exports.
What all modes share belongs in `base.py`. When the database is queried belongs to `schedules`.
"""
