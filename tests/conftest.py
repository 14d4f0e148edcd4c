"""Fixtures that every tier of tests shares."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

import quick_machine
from preloaded import Preloaded
from ragauge.testing import write_checkpoint

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


def pytest_collection_modifyitems(items):
    """The longest files come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: LONG.isdisjoint((item.path.parent.name, item.path.stem)))


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """What was imported stays: the collector, which timed code calls before each trial, need not
    look at it again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real samples, which lies beside the repository and not in it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the samples of the real data sets in {folder}")
    return folder


@pytest.fixture(scope="session")
def preloaded():
    """Commands that need not import the heavy libraries again."""
    with tempfile.TemporaryDirectory() as folder, Preloaded(Path(folder)) as commands:
        yield commands


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A tiny checkpoint with a context of 1,024 tokens; a module whose tests need another has its
    own.
    """
    return write_checkpoint(tmp_path_factory.mktemp("model"), max_position_embeddings=1024)


@pytest.fixture(scope="module")
def lm():
    """A tiny Llama with random weights; a module whose tests need another decoder has its own."""
    import tiny_models

    return tiny_models.tiny_lm()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A tiny encoder as a source."""
    import tiny_models

    return f"path:{tiny_models.encoder(tmp_path_factory.mktemp('encoder'))}"


@pytest.fixture
def measured_quickly(monkeypatch):
    """The machine's rates take milliseconds, and are wrong."""
    for name, value in quick_machine.SHORTENED.items():
        monkeypatch.setattr(quick_machine.machine, name, value)
