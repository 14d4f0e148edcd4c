"""What the tests of values share that the papers' released code gave."""

import pytest


@pytest.fixture(scope="session")
def released_folder(shared_data):
    """The folder of these values, which lies beside the repository and not in it."""
    folder = shared_data.parent / "released"
    if not folder.is_dir():
        pytest.skip(f"needs the values that released code gave, in {folder}")
    return folder
