"""The tables and figures of PipeRAG."""

PAPER = "PipeRAG (Jiang et al., 2024)"
