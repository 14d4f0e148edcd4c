"""Protocols of measurement: latency, load, streams, cold starts, and the estimate of a run."""
