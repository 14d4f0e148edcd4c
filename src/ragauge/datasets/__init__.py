"""Data sets: one file each parses an official format into examples; `base/` has what they share.

Corpora for retrieval belong to `pipelines/database`, a user's own documents to `study`.
"""
