import pytest

from written_records import run


@pytest.fixture
def undisturbed(tmp_path):
    """The content of the file of a run that nothing disturbed, `undisturbed.jsonl`."""
    run(tmp_path / "undisturbed.jsonl")
    return (tmp_path / "undisturbed.jsonl").read_bytes()
