"""The power goes at any write: what is found afterwards is what was there before, or what was to be, whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from power_loss import Disk
from ragauge.io import folders, records
from ragauge.io.pieces import Pieces
from ragauge.io.records import Record, Writer
from ragauge.training.checkpoints import FORMER, STATE, Checkpoints

KEYS = ["a", "b", "c"]
Watch = Callable[[Callable[[Path], None]], Disk]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def watch(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Begins to watch the folder; the images are checked by what it is given."""
    (tmp_path / "images").mkdir()
    disks = list[Disk]()

    def begun(check: Callable[[Path], None]) -> Disk:
        disks.append(Disk(root, tmp_path / "images", check))
        disks[0].watch(monkeypatch)
        return disks[0]

    yield begun
    for disk in disks:
        disk.close()


def save(checkpoints: Checkpoints, step: int) -> None:
    """As a training saves: weights that the library writes do not wait for the disk."""
    tag = checkpoints.tag(step)
    checkpoints.claim(tag)
    (checkpoints.folder / tag / "rank0").mkdir()
    for name in ("weights.pt", "rank0/optimizer.pt"):
        (checkpoints.folder / tag / name).write_bytes(bytes([step]) * 1000)
    checkpoints.keep(tag, {"fingerprint": "x", "step": step, "seconds": float(step), "curve": []})


def test_a_checkpoint_counts_once_it_is_whole_and_the_one_before_until_then(root: Path, watch: Watch) -> None:
    checkpoints, kept = Checkpoints(root), 0
    save(checkpoints, 1)

    def whole(image: Path) -> None:
        found = Checkpoints(image)
        step = found.state()["step"]
        assert step in (kept, kept + 1)
        assert (found.verified() / found.tag(step) / "rank0/optimizer.pt").read_bytes() == bytes([step]) * 1000

    kept = 1
    disk = watch(whole)
    for step in (2, 3):
        save(checkpoints, step)
        kept = step
    assert disk.points > 40
    assert sorted(path.name for path in root.iterdir()) == [STATE, "step-3"]


def test_what_is_moved_aside_is_in_one_place_or_the_other(root: Path, watch: Watch) -> None:
    checkpoints = Checkpoints(root)
    save(checkpoints, 1)

    def there(image: Path) -> None:
        again = Checkpoints(image)
        if (image / STATE).exists():
            again.move_aside()  # as the next process does
        assert Checkpoints(image / FORMER).verified()

    disk = watch(there)
    checkpoints.move_aside()
    assert disk.points > 8


def test_a_folder_is_the_former_or_the_new(root: Path, watch: Watch) -> None:
    def fill(text: bytes) -> Callable[[Path], dict[str, Any]]:
        def make(folder: Path) -> dict[str, Any]:
            (folder / "below").mkdir()
            (folder / "below/file").write_bytes(text)
            return {}

        return make

    folders.build(root / "a", "thing", {"x": 1}, fill(b"one"))

    def whole(image: Path) -> None:
        made = folders.read(image / "a", "thing", verify=True)["made_from"]["x"]
        assert (image / "a/below/file").read_bytes() == {1: b"one", 2: b"two"}[made]

    disk = watch(whole)
    folders.build(root / "a", "thing", {"x": 2}, fill(b"two"))
    assert disk.points > 10


def test_a_record_that_was_kept_is_found_again(root: Path, watch: Watch) -> None:
    kept = list[str]()

    def found(image: Path) -> None:
        out = image / "x.jsonl"
        with Writer(out, {"method": "naive"}, KEYS) as writer:
            assert set(kept) <= writer.done
        if out.exists():
            assert [record.key for record in records.read(out)] == KEYS

    disk = watch(found)
    with Writer(root / "x.jsonl", {"method": "naive"}, KEYS) as writer:
        for key in KEYS:
            writer.begin(key)
            writer.append(answered(key))
            kept.append(key)
        writer.finish({})
    assert disk.points > 20


def test_records_of_other_settings_are_in_their_place_or_aside(root: Path, watch: Watch) -> None:
    write(root / "x.jsonl", {"method": "naive"}, "old")
    before = (root / "x.jsonl").read_bytes()

    def somewhere(image: Path) -> None:
        places = [image / "x.jsonl", image / records.FORMER / "x.jsonl"]
        assert before in [place.read_bytes() for place in places if place.exists()]

    disk = watch(somewhere)
    write(root / "x.jsonl", {"method": "bm25"}, "new", overwrite=True)
    assert disk.points > 20
    assert json.loads((root / records.FORMER / "x.meta.json").read_bytes())["fingerprint"] == {"method": "naive"}


def test_a_piece_that_was_kept_is_whole_or_missing(root: Path, watch: Watch) -> None:
    kept = list[int]()

    def whole(image: Path) -> None:
        pieces = Pieces(image / "a", {"x": 1})
        pieces.open()
        assert [pieces.get(number) for number in kept] == [bytes([number]) * 99 for number in kept]
        assert pieces.get(7) in (None, bytes([7]) * 99)

    pieces = Pieces(root / "a", {"x": 1})
    disk = watch(whole)
    pieces.open()
    for number in (3, 7):
        pieces.keep(number, bytes([number]) * 99)
        kept.append(number)
    assert disk.points > 8


def answered(key: str, text: str = "") -> Record:
    fields = {"status": "ok", "question": "who", "answers": ["me"], "gold": [0], "documents": 2, "prompt_sha256": "0"}
    return Record.model_validate({"key": key, "text": text, **fields})


def write(out: Path, settings: dict[str, Any], text: str, **options: Any) -> None:
    with Writer(out, settings, KEYS, **options) as writer:
        for key in KEYS:
            writer.append(answered(key, text))
        writer.finish({})
