"""An error of a library names itself in one line, also where it has no text."""

from ragauge.errors import in_one_line


def test_all_of_it_in_one_line():
    assert in_one_line(ValueError("two\n  lines")) == "two lines"
    assert in_one_line(ValueError("two\n  lines"), 5) == "two l"
    assert in_one_line(ValueError(), 5) == "ValueError"
