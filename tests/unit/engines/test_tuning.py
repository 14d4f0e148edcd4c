"""The kernels' table is measured once, stored, checked and may be fixed; the fastest data type
follows from it.
"""

import json

import pytest
import torch

import tiny_models
from ragauge.engines import tuning
from ragauge.engines.kernels import choice, compiled
from ragauge.engines.kernels.choice import Operation
from ragauge.engines.kernels.operations import candidates
from ragauge.errors import UserError


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    return tmp_path


def quick(monkeypatch):
    """In place of measuring: the data types that were requested for."""
    requested = []

    def measure(dtype):
        requested.append(dtype)
        return {Operation.ONE_ROW: {"kernel": "native", "seconds": {"native": 1.0}}}

    monkeypatch.setattr(tuning, "measure", measure)
    return requested


def test_the_table_is_measured_once_and_a_damaged_one_again(empty_home, monkeypatch):
    requested = quick(monkeypatch)
    monkeypatch.setenv("RAGAUGE_KERNELS", "measured")
    for _ in range(2):
        chosen = tuning.choose_kernels(torch.float32)
        assert chosen.kernel(torch.float32, Operation.ONE_ROW) == "native"
        assert chosen.kernel(torch.bfloat16, Operation.ONE_ROW) == "plain"
    tuning.choose_kernels(torch.bfloat16)
    assert requested == [torch.float32, torch.bfloat16]
    path = tuning.table_path()
    table = json.loads(path.read_text())
    assert set(table["kernels"]) == {"float32", "bfloat16"}
    assert not list(empty_home.rglob("*.unfinished"))

    for damaged in ("", "{"):
        path.write_text(damaged)
        tuning.choose_kernels(torch.float32)
    assert requested[2:] == [torch.float32] * 2


def test_measuring_chooses_among_valid_kernels(monkeypatch):
    monkeypatch.setattr(tuning, "MIN_S", 0.0)
    monkeypatch.setattr(tuning, "named", lambda _: tiny_models.LLAMA)
    table = tuning.measure(torch.bfloat16)
    assert set(table) == set(Operation)
    fixed = {table.pop(operation)["kernel"] for operation in tuning.UNTIMED}
    assert fixed == {"plain" if compiled.library() is None else "compiled"}
    for operation, row in table.items():
        assert set(row["seconds"]) == set(candidates(operation, torch.bfloat16))
        assert (
            row["kernel"] == "plain"
            or row["seconds"][row["kernel"]] < 0.95 * row["seconds"]["plain"]
        )


@pytest.mark.skipif(compiled.library() is None, reason="needs a C compiler")
def test_a_read_of_weights_is_a_product_with_a_matrix_of_that_size(
    monkeypatch,
):
    sizes = []
    made = compiled.Matrix.of
    monkeypatch.setattr(
        compiled.Matrix,
        "of",
        lambda weight, **more: sizes.append(weight.shape) or made(weight, **more),
    )
    read = tuning.weight_read(1 << 16)
    assert torch.equal(read(), torch.full((1, 64), 1024.0))
    assert sizes == [(64, 1024)]


def test_torchs_own_stays_where_another_is_not_clearly_faster():
    for seconds, expected in ((0.5, "onednn"), (0.97, "plain"), (1.2, "plain")):
        assert choice.fastest_kernel({"plain": 1.0, "onednn": seconds, "native": 1.1}) == expected


def test_kernels_are_switched_off_or_a_setting_is_refused(monkeypatch):
    requested = quick(monkeypatch)
    monkeypatch.setenv("RAGAUGE_KERNELS", "default")
    assert tuning.choose_kernels(torch.float32).named() == {}
    monkeypatch.setenv("RAGAUGE_KERNELS", "fastest")
    with pytest.raises(UserError, match=r"RAGAUGE_KERNELS.*'fastest'.*default, measured"):
        tuning.choose_kernels(torch.float32)
    assert not requested
