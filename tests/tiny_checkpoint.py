"""The tiny model and its questions, as tests of other packages' components have them."""

from ragauge.testing import byte_tokenizer, write_checkpoint, write_questions

__all__ = ["byte_tokenizer", "write_checkpoint", "write_questions"]
