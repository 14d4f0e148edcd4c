"""Runs: methods are asked, timed, loaded and costed, and their records written.

`protocols/` has one file a protocol of measurement. Statistics over what was measured belong to
`results`.
"""
