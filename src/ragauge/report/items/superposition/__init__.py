"""The tables and figures of Superposition Prompting."""

PAPER = "Superposition Prompting (Merth et al., ICML 2024)"
