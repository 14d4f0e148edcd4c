"""The tables and figures of CFIC."""
