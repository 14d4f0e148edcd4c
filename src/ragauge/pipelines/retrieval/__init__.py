"""Retrieval: indexes built, opened and searched, with recall and staleness of what they find."""
