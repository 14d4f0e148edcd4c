"""A Slurm of one node, for as long as the tests of this folder run."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import one_node_slurm


@pytest.fixture(scope="session")
def cluster():
    """The folder of a cluster at work, whose commands this process finds."""
    if not os.environ.get("RAGAUGE_CLUSTER"):
        pytest.skip("starts a Slurm and takes minutes: `make cluster` runs it")
    if reason := one_node_slurm.missing():
        pytest.skip(reason)
    # short: the path of a socket has 108 characters at most
    folder = Path(tempfile.mkdtemp(prefix="ragauge-slurm-"))
    environment = one_node_slurm.start(folder)
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            yield folder
    finally:
        one_node_slurm.stop(folder)
        shutil.rmtree(folder)
