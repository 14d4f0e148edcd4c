"""Asking methods questions: on real decoders, by the clock, and from shapes alone."""
