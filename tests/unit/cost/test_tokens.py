"""Token counts by name and from files."""

import pytest

from ragauge.cost import tokens
from ragauge.errors import UserError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"preamble": 3, "documents": [5, 0], "query": 2, "task": 1}',
            "documents.1: Input should be greater than",
        ),
        ('{"preamble": 3, "docs": [5], "query": 2}', "unknown key 'docs'"),
    ],
)
def test_bad_token_counts_are_named(tmp_path, text, message):
    file = tmp_path / "counts.json"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        tokens.load(str(file))
