"""Plans of the workflow, each made once for all tests."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from preloaded import Preloaded
from workflow_folder import Planned, copy_workflow, run


@pytest.fixture(scope="session")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow's files in a folder of their own, where nothing has been run."""
    return copy_workflow(root, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def plan(checkout: Path, preloaded: Preloaded) -> Callable[..., Planned]:
    """What `snakemake -n` plans with these arguments."""

    @cache
    def planned(*arguments: str) -> Planned:
        return Planned(run(checkout, "-n", "-p", *arguments, commands=preloaded))

    return planned
