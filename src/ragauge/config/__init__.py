"""Configurations: the schema, its checks, and the plan of jobs that follows from one.

Settings of what can be configured belong here; those of PipeRAG and of trainings stand with their
code. Nothing here runs a model.
"""
