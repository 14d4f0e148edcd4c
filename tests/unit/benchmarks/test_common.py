"""Shared parts of the benchmarks: verdicts on targets, options, the table of targets on their page."""

import targets


def test_the_page_has_the_table_of_targets(root):
    assert targets.table() in (root / "benchmarks/README.md").read_text(encoding="utf-8")
