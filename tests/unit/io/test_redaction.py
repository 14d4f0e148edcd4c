"""Secrets of URLs and of the environment reach no file, no output and no error."""

import base64
import sys
import unicodedata
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from asset_home import in_home
from ragauge.assets import resolver
from ragauge.cli import _main
from ragauge.errors import UserError
from ragauge.io.redaction import PrintableStream, redacted
from served_site import Quiet, running

PASSWORD = "pa55-of-anna"
TOKEN = "t0ken-4711-of-anna"
SIGNATURE = "s1gnature0815"
HF_TOKEN = "ofTheEnvironment-99"
BASIC = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
SECRETS = (PASSWORD, TOKEN, SIGNATURE, HF_TOKEN, BASIC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://anna:secret@host/x.zip", "https://***@host/x.zip"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://host/x?id=5&token=abc#part", "https://host/x?id=5&token=***#part"),
        (
            "https://host/x?X-Amz-Date=1&X-Amz-Signature=ab%2Fc",
            "https://host/x?X-Amz-Date=***&X-Amz-Signature=***",
        ),
        ("https://host/x?sv=2020&sig=a%3D&author=Ann", "https://host/x?sv=2020&sig=***&author=Ann"),
        (
            "403 for url: 'https://host/x?Key-Pair-Id=K1'; again",
            "403 for url: 'https://host/x?Key-Pair-Id=***'; again",
        ),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("token hf_abcdefghijklmnopqrstuv is wrong", "token *** is wrong"),
        (
            "a basic understanding; bearer of news; a@b.c",
            "a basic understanding; bearer of news; a@b.c",
        ),
    ],
)
def test_what_is_a_secret(text, shown):
    assert redacted(text) == shown


def test_values_of_the_environment_are_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", HF_TOKEN)
    monkeypatch.setenv("SHORT_TOKEN", "a")
    assert redacted(f"a token {HF_TOKEN}") == "a token ***"


class Site(Quiet, BaseHTTPRequestHandler):
    """A file for anna, with every secret that a URL can have; 403 with its own address for all
    others.
    """

    def do_GET(self):
        user = self.headers.get("Authorization") == f"Basic {BASIC}"
        if user and TOKEN in self.path and "absent" not in self.path:
            self.reply(b"whole")
        else:
            self.send_error(403, f"Forbidden: {self.path}")


@pytest.fixture
def place():
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Site)) as server:
        yield f"http://anna:{PASSWORD}@127.0.0.1:{server.server_port}"


def test_a_fetch_writes_and_shows_no_secret(place, tmp_path, monkeypatch, capfd):
    """The successful one, the refused one, one of no such host, and a model that a record would
    name.
    """
    query = f"token={TOKEN}&X-Amz-Signature={SIGNATURE}"
    file = f"{place}/file.bin?{query}"
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", HF_TOKEN)
    monkeypatch.chdir(tmp_path)
    commands = [
        ["fetch", file, "--out", "manifest.json", "--json"],
        ["fetch", f"{place}/absent.bin?{query}"],
        ["fetch", f"{place}/?{query}"],
        ["fetch", file],
        [
            *["run", "--method", "naive", "--dataset", "nq_open", "--out", "a.jsonl", "--model"],
            file,
        ],
        ["fetch", f"no such asset {HF_TOKEN}"],
    ]
    codes = [_main.main(command) for command in commands]
    output = "".join(capfd.readouterr())
    assert codes == [0, 2, 2, 0, 2, 2], output
    assert "Traceback" not in output
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert b"whole" in [body for path, body in written.items() if path.name == "file.bin"]
    shown = f"{output} {written}"
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_source_with_a_secret_is_no_name_of_a_model():
    with pytest.raises(UserError, match=r"https://\*\*\*@host/m.gguf.*fetch it once") as error:
        resolver.resolve(f"https://anna:{PASSWORD}@host/m.gguf")
    assert PASSWORD not in str(error.value)


def test_two_secrets_are_two_files(place, tmp_path):
    """A parameter that is named as a secret is may also choose the file."""
    paths = [
        in_home(tmp_path, resolver.fetch, f"{place}/file.bin?token={TOKEN}&key={n}") for n in (1, 2)
    ]
    assert paths[0] != paths[1]


def test_what_is_printed_steers_no_terminal(tmp_path, capfd):
    """Ids, names and errors of others, by every character that is not printed."""
    name = "a\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202eb"
    records = tmp_path / f"{name}.jsonl"
    for command in (
        ["validate", str(records)],
        ["list", name],
        ["score", "--metric", "em", str(records)],
    ):
        with suppress(SystemExit):
            assert _main.main(command) == 2
    shown = "".join(capfd.readouterr())
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"]
    assert shown.count(r"a\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202eb") >= 2


def test_bars_and_bytes_are_printed_as_they_are(capfd):
    text = "\r 5%|é▌ | 1/2\n\tx \u2028"
    stream = PrintableStream(sys.stdout)
    assert stream.write(text) == len(text)
    assert stream.encoding == sys.stdout.encoding
    stream.flush()
    assert capfd.readouterr().out == text
