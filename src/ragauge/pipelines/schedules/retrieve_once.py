"""Retrieval before generation alone, as in plain retrieval-augmented generation."""

from ragauge.pipelines.schedules.base import Schedule


class RetrieveOnce(Schedule):
    """Queries once, with the first 64 tokens, and waits for the reply; the neighbours stay to the
    end.
    """

    every_window = False
