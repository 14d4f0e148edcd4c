"""Decoders as ONNX graphs in ONNX Runtime."""
