"""The hub, played by a server on loopback."""

import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

from served_site import Quiet, running

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
# kept by the hub in large-file storage, so that their sha256 is known
LARGE = (".safetensors", ".bin")


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.commit = COMMIT  # of every repository; no other is known
        self.repositories = {
            "org/model": MODEL,
            "org/old": OLD,
            "org/bare": BARE,
            "org/empty": {"config.json": b"{}"},
        }
        self.gated = set()
        self.lies = False  # about the hashes of large files
        self.sent = []

    def sha256(self, body):
        return hashlib.sha256(body + b"other" * self.lies).hexdigest()


class Handler(Quiet, BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        if path.startswith("api/models/"):
            self._api(path.removeprefix("api/models/"))
        else:
            repository, _, name = path.partition(f"/resolve/{self.server.commit}/")
            self._file(repository, name)

    def do_HEAD(self):
        self.do_GET()

    def _api(self, path):
        repository = "/".join(path.split("/")[:2])
        files = self.server.repositories.get(repository)
        if files is None:
            self.reply(b"{}", 404, {"X-Error-Code": "RepoNotFound"})
        elif repository in self.server.gated:
            self.reply(b"{}", 403, {"X-Error-Code": "GatedRepo"})
        elif (asked := re.search(r"/(?:revision|tree)/(\w+)", path)) and asked[1] not in (
            "main",
            self.server.commit,
        ):
            self.reply(b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
        elif "/tree/" in path:
            self.reply(json.dumps([self._entry(n, b) for n, b in files.items()]).encode())
        else:
            siblings = [{"rfilename": name} for name in files]
            about = {"id": repository, "sha": self.server.commit, "siblings": siblings}
            self.reply(json.dumps(about).encode())

    def _entry(self, name, body):
        entry = {
            "type": "file",
            "path": name,
            "size": len(body),
            "oid": self._oid(body),
        }
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": self.server.sha256(body), "size": len(body), "pointerSize": 100}
        return entry

    def _oid(self, body):
        return hashlib.sha1(body).hexdigest()

    def _file(self, repository, name):
        body = self.server.repositories[repository][name]
        tag = self.server.sha256(body) if name.endswith(LARGE) else self._oid(body)
        if self.command == "GET":
            self.server.sent.append(f"{repository}/{name}")
        self.reply(body, headers={"ETag": f'"{tag}"', "X-Repo-Commit": self.server.commit})


@contextmanager
def served_hub(tmp_path, monkeypatch):
    """The hub of this process: with a cache and a home of its own."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    with running(Hub()) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield server
