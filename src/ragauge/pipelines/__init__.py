"""PipeRAG whole: generation with retrieval, from the chunk database to the export of its decoders.

`database/`, `indexes/` and `retrieval/` make and search what is retrieved, `service/` serves it;
`schedules/` say when a database is queried, `modes/` how a decoder reads what was found. `job.py`
runs one pipeline of a configuration. Methods that answer questions belong to `methods`, trainings
to `training`, tables and figures to `report`.
"""
