"""The retrieval service: an index behind gRPC, its process, its clients, and fan-out over servers.

What is searched belongs to `retrieval`.
"""
