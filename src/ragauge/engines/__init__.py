"""Engines: the decoder with its caches, families of checkpoints and kernels, and models on servers.

`backends/` has one file an engine: torch, and openai for servers, whose requests and replies are in
`served/`. `protocol` defines what methods may use of one. Prompts and methods belong elsewhere.
"""
