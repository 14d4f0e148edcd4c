"""Files: JSON lines, records, atomic writes, locks, digests of code.

Nothing here knows what a model, a method or a document is.
"""
