"""Inference methods: one file a method, named as the file; `base/` has what they are made of.

`rankers/`, `compressors/`, `evidence/` and `prompts/` are what methods use. Calls of a model go
through an engine.
"""
