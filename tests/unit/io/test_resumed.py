"""Results of steps outlive a kill, and a time limit leaves those that are made."""

import pytest

from ragauge.errors import UserError
from ragauge.io import resumed


def test_what_was_made_is_not_made_again(tmp_path):
    path = tmp_path / "saved"
    squared = []

    def square(number):
        squared.append(number)
        return number**2

    assert resumed.results(path, "a", [1, 2, 3], square, minutes=0.0) == [1], "one at least"
    assert resumed.results(path, "a", [1, 2, 3], square) == [1, 4, 9]
    with path.open("ab") as file:
        file.write(b"1")  # of a line that a kill cut off
    assert resumed.results(path, "a", [1, 2, 3, 4], square) == [1, 4, 9, 16]
    assert squared == [1, 2, 3, 4]
    assert resumed.results(path, "b", [5], square) == [25], "another identity"
    assert path.read_bytes() == b"b\n25\n"


def test_two_runs_do_not_write_one_file(tmp_path):
    path = tmp_path / "saved"
    with pytest.raises(UserError, match="saved: another process is writing it"):
        resumed.results(path, "a", [1], lambda number: resumed.results(path, "a", [number], int))
