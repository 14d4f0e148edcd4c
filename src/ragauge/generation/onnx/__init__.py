"""Models that read neighbours, as ONNX graphs with their caches as inputs, run by ONNX Runtime."""
