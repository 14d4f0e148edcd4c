"""Command line: one file a verb parses its options, calls the package and prints.

What a verb computes belongs to the rooms below; nothing imports this one.
"""
