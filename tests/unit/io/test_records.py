"""Reading finished records: foreign lines, changed files, and parts of one run."""

import json
import random

import pytest

from ragauge.errors import UserError
from ragauge.io import records
from ragauge.results import scoring
from written_records import KEYS, SETTINGS, answered, run


def test_a_changed_answer_is_found_whichever_reader_opens_the_file(tmp_path, undisturbed):
    """Every byte at random places, by the readers of finished files: `score`, `--gather`, all else."""
    rng = random.Random(7)
    part, other = tmp_path / "undisturbed.jsonl", tmp_path / "other.jsonl"
    for position in rng.sample(range(len(undisturbed)), 40):
        content = bytearray(undisturbed)
        content[position] ^= 1 << rng.randrange(7)
        part.write_bytes(content)
        for reader in (
            records.read,
            lambda path: records.gather([path], other),
            lambda path: scoring.score_file(path, "em"),
            lambda path: scoring.compare_files(path, path),
        ):
            with pytest.raises(UserError, match=r"^[^\n]*undisturbed\.jsonl: changed [^\n]*$"):
                reader(part)
    assert not other.exists()


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(answered(key).model_dump_json() + "\n" for key in ("a", "b", "a")))
    with pytest.raises(UserError, match=rf"^{path}:3: [^\n]*'a'[^\n]*$"):
        records.read(path)
    with pytest.raises(UserError, match=rf"^{path}:3: [^\n]*'a'[^\n]*$"):
        scoring.score_file(path, "em")


# ---- parts of a run


def parts_of(folder):
    paths = [folder / f"{part}-of-2.jsonl" for part in range(2)]
    for path, keys in zip(paths, (KEYS[:3], KEYS[3:]), strict=True):
        run(path, keys)
    return paths


@pytest.mark.parametrize("gpu", [False, True])
def test_what_the_parts_ran_on_stands_beside_them(gpu, tmp_path):
    paths = parts_of(tmp_path)
    for path, name, peak in zip(paths, ("A", "B"), (5, 7), strict=True):
        where = {"cpu": "C", "gpu": {"name": name}} if gpu else {"cpu": name}
        given = {
            "provenance": {**where, "threads": 1},
            "peak_memory_bytes": peak,
            "machines": [name],
        }
        records.meta_path(path).write_text(json.dumps({**records.read_meta(path), **given}))
    records.gather(paths, tmp_path / "all.jsonl")
    meta = records.read_meta(tmp_path / "all.jsonl")
    assert meta["provenance"] == {"cpu": "A / B", "gpu": None, "threads": 1}
    assert meta["peak_memory_bytes"] == 7
    assert [part["threads"] for part in meta["parts"]] == [1, 1]


def test_parts_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path):
    paths = parts_of(tmp_path)
    out = tmp_path / "all.jsonl"
    with pytest.raises(UserError, match="question q0 "):
        records.gather([paths[0], paths[0]], out)
    other = tmp_path / "other.jsonl"
    run(other, KEYS[3:], settings={**SETTINGS, "top_k": 3})
    with pytest.raises(UserError, match=r"other.jsonl: .*top_k is 3 there, 2 here"):
        records.gather([paths[0], other], out)
    records.meta_path(paths[1]).unlink()
    with pytest.raises(UserError, match=r"1-of-2.jsonl: 1-of-2.meta.json "):
        records.gather(paths, out)
    with pytest.raises(UserError, match=r"none.jsonl: none.meta.json "):
        records.gather([tmp_path / "none.jsonl"], out)
    assert not out.exists()
