"""Names and values from files and configurations that nothing can be called by: one line, wherever
they turn up.
"""

import json

import pytest

from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import text_sha256
from ragauge.methods.evidence.chat import RecordedChat
from scripted_chat import ScriptedChat
from sft_material import DAMAGED_REPLIES

LONG = "x" * 5000
NUL = "a\0b"
HALF = "\ud800"
NOBODY = "~no-such-user/model"
EXPERIMENT = {
    "run": "small",
    "models": {"m": {"source": "smollm2-135m-instruct"}},
    "datasets": {"nq_open": {}},
    "methods": {"naive": {}},
    "items": [],
}


@pytest.mark.parametrize("name", [LONG, NUL, HALF, NOBODY])
@pytest.mark.parametrize(
    "sections",
    [
        lambda name: {"models": {"m": {"source": name}}},
        lambda name: {
            "models": {"m": {"source": f"path:{name}"}},
            "pipelines": {"p": {"task": "perplexity"}},
        },
        lambda name: {"datasets": {"nq_open": {"data": name}}},
        lambda name: {"models": {name: {"source": "smollm2-135m-instruct"}}},
        lambda name: {"databases": {"d": {"corpus": name}}},
        lambda name: {"databases": {"d": {"corpus": "wikipedia", "encoder": name}}},
        lambda name: {"methods": {"dense_k1": {"method": "dense", "top_k": 1, "datasets": [name]}}},
    ],
)
def test_a_configuration(sections, name):
    with pytest.raises(UserError, match=r"^small\.yaml: ") as raised:
        loading.parse({**EXPERIMENT, **sections(name)}, "small.yaml")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [LONG, NUL, "../outside", "/etc/passwd"])
def test_a_manifest(name, tmp_path):
    folder = tmp_path / "a"
    folders.build(folder, "thing", {}, lambda made: {})
    path = folder / folders.MANIFEST
    manifest = json.loads(path.read_bytes())
    manifest.pop("seal")
    manifest["files"] = {name: {"bytes": 1, "sha256": "0" * 64}}
    path.write_text(json.dumps({**manifest, "seal": text_sha256(manifest)}))
    with pytest.raises(UserError, match=r"missing from its thing|not a manifest of a thing"):
        folders.read(folder, "thing")


@pytest.mark.parametrize("line", DAMAGED_REPLIES)
def test_replies_that_were_kept(line, tmp_path):
    """Those of a study; those of a training's data are in `training/test_data.py`."""
    path = tmp_path / "replies"
    chat = ScriptedChat(lambda request: f"reply to {request}")
    assert RecordedChat(chat, path).replies(["Who?"], 9) == ["reply to Who?"]
    [key] = [json.loads(kept)[0] for kept in path.read_bytes().split(b"\n") if kept]
    # of the same request, for which it does not stand
    line = line.replace('"key"', json.dumps(key))
    path.write_bytes(f"{line}\n".encode() + path.read_bytes() + f"\n{line}".encode())
    assert RecordedChat(chat, path).replies(["Who?", "Why?"], 9) == [
        "reply to Who?",
        "reply to Why?",
    ]
    assert chat.requests == ["Who?", "Why?"]
