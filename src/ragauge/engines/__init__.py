"""Engines: the decoder with its caches, families of checkpoints and kernels, and clients of model
servers.

`protocol` defines what methods may use of one. Prompts and methods belong elsewhere.
"""
