"""The start and the end of a workflow run, called by the Snakefile: one file a step."""
