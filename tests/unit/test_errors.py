"""An error of a library names itself in one line, also where it has no text."""

import pytest

from ragauge.errors import error_line, in_one_line


@pytest.mark.parametrize(
    ("error", "place", "line"),
    [
        (ValueError("\n first\n last \n"), 0, "first"),
        (ValueError("\n first\n last \n"), -1, "last"),
        (ValueError("\n"), 0, "ValueError"),
        (ValueError(), -1, "ValueError"),
    ],
)
def test_one_line_of_it(error, place, line):
    assert error_line(error, place) == line


def test_all_of_it_in_one_line():
    assert in_one_line(ValueError("two\n  lines")) == "two lines"
    assert in_one_line(ValueError("two\n  lines"), 5) == "two l"
    assert in_one_line(ValueError(), 5) == "ValueError"
