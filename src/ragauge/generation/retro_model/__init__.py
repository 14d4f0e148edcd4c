"""RETRO at the sizes of the PipeRAG paper: its architecture and its weights."""
