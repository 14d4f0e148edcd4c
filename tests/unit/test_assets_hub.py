"""The hub, played by a server on loopback; what is tested is our choice of files, the errors and the local folder."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ragauge import assets
from ragauge.errors import UserError

COMMIT = "a" * 40
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"safe" * 10,
    "pytorch_model.bin": b"pickle" * 10,
    "modeling_own.py": b"raise SystemExit",
    "onnx/model.onnx": b"onnx",
    "tokenizer.json": b"{}",
    "README.md": b"words",
}
OLD = {"config.json": b"{}", "pytorch_model.bin": b"pickle" * 10, "vocab.txt": b"a"}
BARE = {"config.json": b"{}", "model.safetensors": b"safe" * 10}
LARGE = (".safetensors", ".bin")  # kept by the hub in large-file storage, so that their sha256 is known


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commit = COMMIT  # of every repository; no other is known
        self.repositories = {"org/model": MODEL, "org/old": OLD, "org/bare": BARE, "org/empty": {"config.json": b"{}"}}
        self.gated: set[str] = set()
        self.lies = False  # about the hashes of large files
        self.sent: list[str] = []

    def sha256(self, body: bytes) -> str:
        return hashlib.sha256(body + b"other" * self.lies).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        if path.startswith("api/models/"):
            self._api(path.removeprefix("api/models/"))
        else:
            repository, _, name = path.partition(f"/resolve/{self.server.commit}/")
            self._file(repository, name)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _api(self, path: str) -> None:
        repository = "/".join(path.split("/")[:2])
        files = self.server.repositories.get(repository)
        if files is None:
            self._reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif repository in self.server.gated:
            self._reply(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif (asked := re.search(r"/(?:revision|tree)/(\w+)", path)) and asked[1] not in ("main", self.server.commit):
            self._reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif "/tree/" in path:
            self._reply(200, json.dumps([self._entry(n, b) for n, b in files.items()]).encode())
        else:
            siblings = [{"rfilename": name} for name in files]
            self._reply(200, json.dumps({"id": repository, "sha": self.server.commit, "siblings": siblings}).encode())

    def _entry(self, name: str, body: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(body), "oid": self._oid(body)}
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": self.server.sha256(body), "size": len(body), "pointerSize": 100}
        return entry

    def _oid(self, body: bytes) -> str:
        return hashlib.sha1(body).hexdigest()

    def _file(self, repository: str, name: str) -> None:
        body = self.server.repositories[repository][name]
        tag = self.server.sha256(body) if name.endswith(LARGE) else self._oid(body)
        if self.command == "GET":
            self.server.sent.append(f"{repository}/{name}")
        self._reply(200, body, {"ETag": f'"{tag}"', "X-Repo-Commit": self.server.commit})

    def _reply(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub of this process: with a cache and a home of its own."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with served_hub(tmp_path, monkeypatch) as server:
        yield server


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {"ragauge-asset.json"}


def test_safetensors_settings_and_tokenizer_are_fetched_and_no_code(hub: Hub) -> None:
    folder = assets.resolve("hf:org/model")
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    told = assets.describe("hf:org/model")
    assert told["revision"] == COMMIT
    assert told["bytes"] == sum(len(MODEL[n]) for n in names(folder))


def test_bin_files_are_the_fallback(hub: Hub) -> None:
    assert names(assets.resolve("hf:org/old")) == {"config.json", "pytorch_model.bin", "vocab.txt"}


def test_a_second_call_asks_nobody(hub: Hub) -> None:
    folder = assets.resolve("hf:org/model")
    hub.repositories.clear()
    assert assets.resolve("hf:org/model") == folder


def test_what_the_hubs_cache_has_is_enough_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assets.resolve("hf:org/model")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "another"))
    assert "model.safetensors" in names(assets.resolve("hf:org/model"))


def test_a_tokenizer_may_come_from_another_repository(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = assets.Entry(kind="model", source="hf:org/bare", tokenizer="org/model", template="plain")
    monkeypatch.setattr(assets, "entries", lambda: {"bare": entry})
    folder = assets.resolve("bare")
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "config.json").read_bytes() == BARE["config.json"]
    assert "org/model/model.safetensors" not in hub.sent


def test_a_wrong_hash_is_refused_and_the_file_removed(hub: Hub, tmp_path: Path) -> None:
    hub.lies = True
    expected = r"wrong sha256 from the hub, for model\.safetensors: expected [0-9a-f]{64}, found [0-9a-f]{64}"
    with pytest.raises(UserError, match=expected):
        assets.resolve("hf:org/model")
    assert not list((tmp_path / "cache").rglob("blobs/" + "[0-9a-f]" * 64))


def test_errors_of_the_hub_are_one_line_with_the_alternative(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated.add("org/bare")
    cases = {
        "hf:org/none": "no such repository, or a private one; a local copy is named path:/folder",
        "hf:org/bare": "access is granted by its owners; ask at http.*/org/bare, then run: hf auth login",
        "hf:org/empty": r"holds neither \*\.safetensors nor pytorch_model\*\.bin",
    }
    for source, expected in cases.items():
        with pytest.raises(UserError, match=rf"{source}: .*{expected}") as raised:
            assets.resolve(source)
        assert "\n" not in str(raised.value)


def test_a_hub_out_of_reach_is_said_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"hf:org/model: cannot be fetched from http://127.0.0.1:9: .*path:/folder"):
        assets.resolve("hf:org/model")
