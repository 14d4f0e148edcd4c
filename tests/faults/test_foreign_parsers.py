"""Index files and graphs of strangers, which faiss and ONNX Runtime parse: refused in one line, and nothing dies.

`RAGAUGE_FUZZ=1000` in the environment has each kind read so many.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import foreign_files
from ragauge.errors import UserError
from ragauge.io import graphs, trials
from ragauge.io.folders import file_sha256
from ragauge.retrieval import index as indexes
from ragauge.retrieval.database import Database
from ragauge.retrieval.indexes import IndexRecipe
from ragauge.retrieval.indexes.hnsw import Hnsw

faiss = pytest.importorskip("faiss")
CASES = max(40, int(os.environ.get("RAGAUGE_FUZZ", "0")))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Merged indexes of both types, by name."""
    import tiny_database

    folder = tmp_path_factory.mktemp("built")
    made = tiny_database.recipe(
        tiny_database.write_corpus(folder / "c.jsonl"), tiny_database.write_tokenizer(folder / "tokenizer")
    )
    tiny_database.build(folder / "db", made)
    other: IndexRecipe = Hnsw(m=4, ef_construction=20, ef_search=8)
    indexes.train(folder / "db", "hnsw", other)
    for shard in range(2):
        indexes.add(folder / "db", "hnsw", other, shard)
    indexes.merge(folder / "db", "hnsw", other)
    return {label: indexes.merged_folder(folder / "db", label) for label in ("ivf", "hnsw")}


def write_graph(path: Path) -> Path:
    """A small graph: tokens looked up, multiplied, reshaped and normalised, as in a decoder."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    constants = {"table": (32, 8), "weights": (8, 8), "bias": (8,)}
    initial = [numpy_helper.from_array(draw.random(s, np.float32), name) for name, s in constants.items()]
    initial.append(numpy_helper.from_array(np.array([-1, 2, 4]), "heads"))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "weights"], ["mixed"]),
        helper.make_node("Add", ["mixed", "bias"], ["moved"]),
        helper.make_node("Reshape", ["moved", "heads"], ["parts"]),
        helper.make_node("Softmax", ["parts"], ["out"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["tokens", 2, 4])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", graphs.OPSET)], ir_version=10)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("kind", ["ivf", "hnsw", "onnx"])
def test_what_gets_through_a_trial_ends_no_reader(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    whole = write_graph(tmp_path / "g.onnx") if kind == "onnx" else Path(shutil.copytree(built[kind], tmp_path / kind))
    driver = [sys.executable, foreign_files.__file__, kind, str(whole), str(CASES)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(driver, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(kind, found["happened"])
    assert found["deadly"] == []
    assert sum(count for what, count in found["happened"].items() if what.startswith("tried")) >= CASES * 0.9
    assert found["happened"].get("tried: refused", 0) + found["happened"].get("tried: a traceback", 0) > CASES / 4


def test_an_index_of_a_stranger_is_tried_once_and_refused_where_the_trial_dies(
    built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))  # of another machine
    database = Database(Path(shutil.copytree(built["ivf"].parents[2], tmp_path / "db")))
    folder = indexes.merged_folder(database.folder, "ivf")
    indexes.Index(database, "ivf")
    with monkeypatch.context() as patch:
        patch.setattr(trials, "outcome", lambda *_: pytest.fail("tried again"))
        indexes.Index(database, "ivf")
    flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR
    index = faiss.read_index(str(folder / "index.faiss"), flags)
    one = faiss.downcast_InvertedLists(index.invlists).lists.at(3)
    true, lie = (struct.pack("<QQQ", one.size, one.capacity, offset) for offset in (one.offset, 1 << 40))
    content = (folder / "index.faiss").read_bytes()
    assert content.count(true) == 1
    (folder / "index.faiss").write_bytes(content.replace(true, lie))  # a search reads memory that is not its own
    foreign_files.sealed(folder)
    with pytest.raises(UserError, match=r"not a merged index that can be read: .*list 3 lies beyond index.ivfdata"):
        indexes.Index(database, "ivf")


def test_a_process_that_dies_or_takes_all_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    (tmp_path / "reader.py").write_text(
        "import os, signal\n"
        "def trial(path):\n"
        "    what = path.read_text()\n"
        "    if what == 'dies': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if what == 'grows': bytearray(1 << 40)\n"
        "    if what == 'refuses': raise ValueError('no\\nsuch thing')\n"
        "    if what == 'waits': import time; time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trials, "LONGEST_S", 2)
    path = tmp_path / "file"
    told = {"dies": "a process that reads it ends by SIGSEGV", "grows": "MemoryError", "refuses": "such thing"}
    for what, expected in {**told, "waits": "not read after 2 s"}.items():
        path.write_text(what)
        with pytest.raises(UserError) as raised:
            trials.check(file_sha256(path), "reader", path, "a thing")
        assert str(raised.value).startswith(f"{path}: not a thing that can be read: ")
        assert expected in str(raised.value)
        assert "\n" not in str(raised.value)
    path.write_text("reads well")
    trials.check(file_sha256(path), "reader", path, "a thing")


def test_a_graph_that_changed_since_its_export_is_refused_before_it_is_read(tmp_path: Path) -> None:
    from ragauge.engines.onnx.runtime import check_origin, write_origin

    graph = write_graph(tmp_path / "step.onnx")
    write_origin(tmp_path, {"form": "x"})
    assert check_origin(tmp_path, {"form": "x"})["form"] == "x"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    with pytest.raises(UserError, match=r"step.onnx: not the graph that was exported here \(sha256 differs\)"):
        check_origin(tmp_path, {"form": "x"})


def test_a_cut_graph_of_a_stranger_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    graph = write_graph(tmp_path / "g.onnx")
    graphs.open_session(graph, 1)
    graph.write_bytes(graph.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"g\.onnx: not a graph that can be read: ") as raised:
        graphs.open_session(graph, 1)
    assert "\n" not in str(raised.value)
