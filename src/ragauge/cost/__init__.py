"""Costs: folds over the trace of model calls (MACs, cycles, bytes, roofline), shapes of models.

`machine` has the rates, the load and the provenance of a machine, which engines and training need
as well. Protocols of measurement belong to `measure`.
"""
