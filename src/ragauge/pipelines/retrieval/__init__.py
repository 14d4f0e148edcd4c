"""Retrieval from a chunk database in one process: indexes built, opened and searched.

Recall, and how stale queries do, are measured here too. What an index type does belongs to
`indexes`, searches over a network to `service`.
"""
