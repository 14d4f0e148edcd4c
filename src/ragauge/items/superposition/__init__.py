"""The tables and figures of Superposition Prompting."""
