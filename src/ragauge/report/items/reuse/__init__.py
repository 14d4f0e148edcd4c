"""Our tables and figures of methods that reuse documents' keys and values."""

PAPER = "Reuse of keys and values"
