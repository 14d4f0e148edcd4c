"""The tables and figures of CFIC."""

PAPER = "CFIC"
