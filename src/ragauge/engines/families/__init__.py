"""Checkpoint families: one file each, with `MODEL_TYPES`, `shape(config)` and the `NAMES` of its
tensors.

A family whose tensors are not the decoder's own has `convert(part, tensor, shape, config)` too:
what a weight or a bias becomes that was read for a part of `weights.Layer` or `weights.Weights`.
Constants that families multiply with are multiplied into weights there, so that the decoder has no
branch for them.
"""
