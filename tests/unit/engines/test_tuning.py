"""The kernels' table is measured once, stored, checked and may be fixed; the fastest data type
follows from it.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ragauge.engines import kernels, tuning
from ragauge.engines.kernels import Operation, candidates, compiled
from ragauge.errors import UserError


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    return tmp_path


def quick(
    monkeypatch: pytest.MonkeyPatch, fastest: str = "native", load: float = 0.0
) -> list[torch.dtype]:
    """In place of measuring: the data types that were asked for."""
    asked: list[torch.dtype] = []

    def measure(dtype: torch.dtype) -> dict[str, Any]:
        asked.append(dtype)
        return {Operation.ONE: {"kernel": fastest, "seconds": {fastest: 1.0}, "load_share": load}}

    monkeypatch.setattr(tuning, "measure", measure)
    return asked


def test_the_table_is_measured_once_and_a_damaged_or_foreign_one_again(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = quick(monkeypatch)
    for _ in range(2):
        chosen = tuning.choose_kernels(torch.float32, "measured")
        assert chosen.kernel(torch.float32, Operation.ONE) == "native"
        assert chosen.kernel(torch.bfloat16, Operation.ONE) == "plain"
    tuning.choose_kernels(torch.bfloat16, "measured")
    assert asked == [torch.float32, torch.bfloat16]
    path = tuning.table_path()
    table = json.loads(path.read_text())
    assert set(table["kernels"]) == {"float32", "bfloat16"}
    assert not list(empty_home.rglob("*.unfinished"))

    for damage in (
        "",
        "{",
        '{"kernels": {"float32": {"what": {}}}}',
        json.dumps({**table, "machine": {}}),
    ):
        path.write_text(damage)
        tuning.choose_kernels(torch.float32, "measured")
    assert asked[2:] == [torch.float32] * 4


def test_a_table_made_under_load_is_measured_again_later(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = quick(monkeypatch, load=0.5)
    for age_s, times in ((0, 1), (60, 1), (2 * tuning.LOADED_S, 2)):
        tuning.choose_kernels(torch.float32, "measured")
        path = tuning.table_path()
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
        tuning.choose_kernels(torch.float32, "measured")
        assert len(asked) == times


def test_measuring_chooses_among_valid_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MIN_S", 0.0)
    monkeypatch.setattr(tuning, "LAYER", ((64, 32), (32, 64)))
    table = tuning.measure(torch.bfloat16)
    assert set(table) == set(Operation)
    for operation, row in table.items():
        assert set(row["seconds"]) == set(candidates(operation, torch.bfloat16))
        assert (
            row["kernel"] == "plain"
            or row["seconds"][row["kernel"]] < 0.95 * row["seconds"]["plain"]
        )
    tuning.check_tables({"bfloat16": table}, "")


@pytest.mark.skipif(compiled.library() is None, reason="needs a C compiler")
def test_a_read_of_weights_is_a_product_with_a_matrix_of_that_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[tuple[int, ...]] = []
    made = compiled.Matrix.of
    monkeypatch.setattr(
        compiled.Matrix,
        "of",
        lambda weight, **more: sizes.append(weight.shape) or made(weight, **more),
    )
    read = tuning.weight_read(1 << 16)
    assert torch.equal(read(), torch.full((1, 64), 1024.0))
    assert sizes == [(64, 1024)]


def test_torchs_own_stays_where_another_is_not_clearly_faster() -> None:
    for seconds, expected in ((0.5, "onednn"), (0.97, "plain"), (1.2, "plain")):
        assert kernels.fastest_kernel({"plain": 1.0, "onednn": seconds, "native": 1.1}) == expected


def test_kernels_are_fixed_by_a_file_or_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = quick(monkeypatch)
    path = tmp_path / "kernels.json"
    path.write_bytes(tuning.encode_tables({"float32": {Operation.FEW: {"kernel": "onednn"}}}))
    assert tuning.choose_kernels(torch.float32, str(path)).named() == {
        "float32": {Operation.FEW: "onednn"}
    }
    assert tuning.choose_kernels(torch.float32, "default").named() == {}
    monkeypatch.setenv("RAGAUGE_KERNELS", str(path))
    assert tuning.choose_kernels(torch.float32).origin == str(path)
    assert not asked


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "must be a JSON object"),
        ("{}", "an object by dtype is needed"),
        ('{"kernels": {"int4": {}}}', "unknown dtype 'int4'; did you mean 'int8'"),
        ('{"kernels": {"float32": {"product": {}}}}', "unknown operation 'product'"),
        (
            '{"kernels": {"float32": {"product of 1 row": {"kernel": "widened"}}}}',
            "unknown kernel 'widened'",
        ),
        (
            '{"kernels": {"float32": {"product of 1 row": 3}}}',
            "float32: an object of operations is needed",
        ),
        (None, "No such file"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "kernels.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=says) as error:
        tuning.choose_kernels(torch.float32, str(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
