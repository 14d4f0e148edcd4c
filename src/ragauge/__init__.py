"""ragauge: what retrieval-augmented generation costs and what it is worth."""

__version__ = "0.1.0"
