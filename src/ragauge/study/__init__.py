"""Studies: a user's documents and questions become passages, a configuration and a recommendation.

Running and rendering them is the workflow's task, as for every experiment.
"""
