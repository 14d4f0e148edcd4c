"""CFIC: evidence found by a decoder in a long document, without chunks (Qian et al., ACL 2024)."""
