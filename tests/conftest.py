"""Fixtures that every tier of tests shares."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import quick_machine
from preloaded import Preloaded
from ragauge.testing import write_checkpoint

if TYPE_CHECKING:
    from ragauge.engines.lm import LM

# Runs of the workflow in tests are too short to be worth a process for their jobs; those that are
# about it say so.
os.environ.setdefault("RAGAUGE_FORKS", "0")
ROOT = Path(__file__).resolve().parent.parent
os.environ["RAGAUGE_KERNELS"] = "default"  # a test measures kernels only where they are its subject
os.environ["RAGAUGE_DTYPE"] = "float32"  # what `dtype: auto` stands for

# Drawn examples are the same in every run, and no busy machine fails one.
settings.register_profile("derandomised", derandomize=True, deadline=None, database=None)
settings.load_profile("derandomised")

# folders and files that take longest
LONG = {"workflow", "browser", "test_finetuning", "test_wiki_questions"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: LONG.isdisjoint((item.path.parent.name, item.path.stem)))


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """What was imported stays: the collector, which timed code calls before each trial, need not
    look at it again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real samples, which lies beside the repository and not in it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the samples of the real data sets in {folder}")
    return folder


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    """Commands that need not import the heavy libraries again."""
    with tempfile.TemporaryDirectory() as folder, Preloaded(Path(folder)) as commands:
        yield commands


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with a context of 1,024 tokens; a module whose tests need another has its
    own.
    """
    return write_checkpoint(tmp_path_factory.mktemp("model"), max_position_embeddings=1024)


@pytest.fixture(scope="module")
def lm() -> LM:
    """A tiny Llama with random weights; a module whose tests need another decoder has its own."""
    import tiny_models

    return tiny_models.tiny_lm()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny encoder as a source."""
    import tiny_models

    return f"path:{tiny_models.encoder(tmp_path_factory.mktemp('encoder'))}"


@pytest.fixture
def measured_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's rates take milliseconds, and are wrong."""
    for name, value in quick_machine.SHORTENED.items():
        monkeypatch.setattr(quick_machine.machine, name, value)
