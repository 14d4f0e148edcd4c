"""Plans of the workflow, each made once for all tests."""

from functools import cache

import pytest

from workflow_folder import Planned, copy_workflow, run


@pytest.fixture(scope="session")
def checkout(root, tmp_path_factory):
    """The workflow's files in a folder of their own, where nothing has been run."""
    return copy_workflow(root, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def plan(checkout, preloaded):
    """What `snakemake -n` plans with these arguments."""

    @cache
    def planned(*arguments):
        return Planned(run(checkout, "-n", "-p", *arguments, commands=preloaded))

    return planned
