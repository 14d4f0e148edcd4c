"""Retrieval over a corpus: chunk database, embeddings, IVF-PQ index, and the retriever that answers queries."""
