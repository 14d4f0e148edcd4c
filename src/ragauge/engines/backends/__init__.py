"""Engines, one file each, which is the engine's name: `load(source, ...)` returns a
`ragauge.engines.protocol.Engine`.

`CAPABILITIES` says what the engine can do once a model is loaded; reading it must not import torch
or the like.
"""
