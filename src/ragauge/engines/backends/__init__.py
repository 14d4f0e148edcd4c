"""Engines, one file each, named as the file: `load(source, ...)` gives a `ragauge.engines.Engine`.

`CAPABILITIES` says what the engine can do once a model is loaded; reading it must not import torch or the like.
"""
