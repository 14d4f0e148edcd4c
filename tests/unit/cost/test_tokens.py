"""Token counts by name and from files."""

from ragauge.cost import tokens


def test_token_counts_from_a_file(tmp_path):
    file = tmp_path / "counts.json"
    file.write_text('{"preamble": 3, "documents": [5, 6], "query": 2, "task": 1}')
    assert tokens.load(str(file)) == tokens.TokenCounts(3, (5, 6), 2, 1)
    assert tokens.load("nq_open").total == 2914
