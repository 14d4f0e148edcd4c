"""The tables and figures of CFIC."""

PAPER = "CFIC, chunking-free in-context retrieval (Qian et al., ACL 2024)"
