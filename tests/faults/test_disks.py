"""Full and read-only disks: small file systems in memory, mounted for the test.

The error is one line, no half-written file is taken for complete, and a rerun with room ends as an
undisturbed run.
"""

import errno
import fcntl
import json
import os
import shutil
import subprocess

import pytest

import workflow_folder
from ragauge.cli._main import main
from ragauge.errors import UserError
from ragauge.testing import write_questions
from sft_material import built, settings

SIZE = 8 << 20


@pytest.fixture
def disk(tmp_path):
    """The folder of a mounted file system of `SIZE` bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    return write_questions(tmp_path_factory.mktemp("data") / "nq.jsonl", 6)


def remount(disk, how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def run_arguments(model, questions, out):
    source = f"--method superposition --dataset nq_open --data {questions} --model {model}"
    return f"run {source} --threads 1 --max-new-tokens 5 --out {out}".split()


@pytest.fixture(scope="module")
def undisturbed(model, questions, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "x.jsonl"
    assert main(run_arguments(model, questions, out)) == 0
    return workflow_folder.records(out)


def one_line(captured):
    [line] = [line for line in captured.err.splitlines() if line.startswith("ragauge: error: ")]
    assert "Traceback" not in captured.err
    return str(line)


# --- full ---


@pytest.mark.parametrize(
    ("full", "kilobytes"),
    # beyond which safetensors writes, or torch its optimizer's state
    [("checkpoints", 60), ("checkpoints", 250), ("out", 100)],
)
def test_fine_tuning(disk, full, kilobytes, tmp_path, monkeypatch, capsys):
    built(tmp_path, monkeypatch)
    folders = {name: tmp_path / name for name in ("data", "checkpoints", "out", "whole")}
    folders[full] = disk / full
    stated = settings(tmp_path, steps=2, checkpoint_steps=1).model_dump(exclude_none=True)
    changes = [part for k, v in stated.items() for part in ("--set", f"{k}={json.dumps(v)}")]

    def trained(out, checkpoints):
        given = ["--data", folders["data"], "--checkpoints", checkpoints, "--out", out]
        return main(["sft", "train", *changes, *map(str, given), "--threads", "1"])

    assert trained(folders["whole"], tmp_path / "others") == 0
    remount(disk, f"size={kilobytes}k")
    capsys.readouterr()
    assert trained(folders["out"], folders["checkpoints"]) == 2
    line = one_line(capsys.readouterr())
    assert f"{folders[full]}" in line
    assert "cannot be written" in line
    assert "disk full" in line
    assert not (folders["out"]).exists()
    remount(disk, f"size={SIZE}")
    assert trained(folders["out"], folders["checkpoints"]) == 0
    model = "model.safetensors"
    assert (folders["out"] / model).read_bytes() == (folders["whole"] / model).read_bytes()


STAGES = {"shards/00000": "shard", "embeddings/00000": "embed", "indexes/ivf/merged": "merge"}


@pytest.mark.parametrize("target", STAGES)
def test_databases_and_indexes(disk, target, tmp_path):
    """Each stage of an index's making, with no room for what it writes."""
    pytest.importorskip("faiss")
    import tiny_database as tiny
    from ragauge.pipelines.database import chunking, embed
    from ragauge.pipelines.retrieval import index

    folder = disk / "db"
    corpus = tiny.write_corpus(tmp_path / "c.jsonl")
    tokenizer = tiny.write_tokenizer(tmp_path / "tokenizer")
    recipe = tiny.recipe(corpus, tokenizer)
    tiny.build(folder, recipe)
    whole = {path.name: path.read_bytes() for path in (folder / target).iterdir()}
    shutil.rmtree(folder / target)
    stages = {
        "shard": lambda: chunking.build_shard(folder, recipe, 0),
        "embed": lambda: embed.build_embeddings(folder, 0, tiny.Choice()),
        "merge": lambda: index.merge(folder, "ivf", tiny.INDEX),
    }
    with open(disk / "filler", "wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(disk).free))
    with pytest.raises(UserError, match="No space left on device"):
        stages[STAGES[target]]()
    assert not (folder / target).exists()
    (disk / "filler").unlink()
    assert stages[STAGES[target]]()
    assert {path.name: path.read_bytes() for path in (folder / target).iterdir()} == whole


# --- read-only ---


def test_a_read_only_folder_of_results(
    disk,
    model,
    questions,
    undisturbed,
    capsys,
):
    out = disk / "results" / "x.jsonl"
    remount(disk, "ro")
    assert main(run_arguments(model, questions, out)) == 2
    assert "Read-only file system" in one_line(capsys.readouterr())
    remount(disk, "rw")
    assert main(run_arguments(model, questions, out)) == 0
    finished = out.read_bytes()
    remount(disk, "ro")  # a finished run is read as before, and asked again says what it cannot do
    assert workflow_folder.records(out) == undisturbed
    assert main(run_arguments(model, questions, out)) == 2
    assert "Read-only file system" in one_line(capsys.readouterr())
    assert out.read_bytes() == finished


# --- without locks ---


def test_a_file_system_without_locks(
    model,
    questions,
    tmp_path,
    monkeypatch,
    capsys,
):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    out = tmp_path / "x.jsonl"
    assert main(run_arguments(model, questions, out)) == 2
    assert f"{out}: {os.strerror(errno.ENOLCK)}" in one_line(capsys.readouterr())
    assert not out.exists()
