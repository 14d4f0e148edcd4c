"""Costs: folds over the trace of model calls (MACs, cycles, bytes, roofline), shapes of models,
rates of machines.

Measuring belongs to `measure`.
"""
