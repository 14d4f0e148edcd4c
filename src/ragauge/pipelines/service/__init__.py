"""The retrieval service: a searcher behind gRPC, its process, clients, and fan-out over several
servers.
"""
