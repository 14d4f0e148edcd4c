"""Engines, one file each, named as the file: `load(source, ...)` gives a `ragauge.engines.Engine`."""
