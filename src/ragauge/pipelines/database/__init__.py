"""Chunk databases: corpora cut into chunks, embedded, and stored in shards."""
