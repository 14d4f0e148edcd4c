"""The tables and figures of PipeRAG."""

PAPER = "PipeRAG"
