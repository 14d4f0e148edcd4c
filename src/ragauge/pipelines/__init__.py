"""PipeRAG: generation with retrieval, from the chunk database to the export of its decoders.

`database/`, `indexes/` and `service/` are what is searched, `retrieval/` how; `schedules/` say
when, `modes/` how a decoder reads what was found. Methods that answer questions belong to
`methods`.
"""
