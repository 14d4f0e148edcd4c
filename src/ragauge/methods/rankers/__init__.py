"""Rankers: one file each, with `rank(query, documents, **options)` -> one score a document, higher
is better.
"""
