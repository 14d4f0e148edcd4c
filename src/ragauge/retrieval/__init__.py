"""Retrieval over a corpus: chunk database, embeddings, indexes, and the retriever that answers queries."""
