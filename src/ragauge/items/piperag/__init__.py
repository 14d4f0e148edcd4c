"""The tables and figures of PipeRAG."""
