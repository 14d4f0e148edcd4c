"""An experiment's configuration: its schema, its sweeps, and what its jobs need."""
