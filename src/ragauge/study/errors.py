"""The error of a document that is skipped."""


class UnreadableError(Exception):
    """A file without text that can be read; the message says why."""
