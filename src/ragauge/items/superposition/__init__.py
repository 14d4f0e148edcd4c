"""The tables and figures of Superposition Prompting."""

PAPER = "Superposition Prompting"
