"""Kernels of the decoder on a CPU: which ones run (`choice`), the `operations` that run them, and
ragauge's own C files (`compiled`).

How they are timed is in `engines/tuning.py`; CUDA, exports and gradients use torch's own kernels.
"""
