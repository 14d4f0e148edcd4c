"""Data sets: one file a data set, each turning its official format into Examples."""
