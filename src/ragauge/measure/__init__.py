"""Run methods: answer questions, measure latency and load, compute costs, write records.

`protocols/` has one file a protocol of measurement. Statistics over what was measured belong to
`results`.
"""
