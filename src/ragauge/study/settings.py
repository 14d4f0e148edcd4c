"""A study of one's own documents and questions: what is read, what is retrieved, and the experiment
that it becomes.
"""

from pathlib import Path

# how passages are retrieved; fused: both, by the sum of reciprocal ranks
RETRIEVALS = ("bm25", "dense", "fused")
# documents and questions that `ragauge init --example` writes
EXAMPLE = Path(__file__).parent / "example"
