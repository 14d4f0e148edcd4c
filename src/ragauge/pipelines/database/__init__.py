"""Chunk databases: corpora read, cut into chunks, held-out text kept apart, chunks embedded.

What is made of the vectors belongs to `indexes` and `retrieval`.
"""
