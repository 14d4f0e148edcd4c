"""Texts of the packages that `ragauge new` writes."""
