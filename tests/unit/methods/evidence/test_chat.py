"""Models that reply: side by side as alone, behind an endpoint, which is tried again, and recorded
in a file.
"""

import time
from types import SimpleNamespace

import pytest
import torch

from endpoints import Reply, says, served
from ragauge.errors import UserError
from ragauge.methods.evidence.chat import Endpoint, EndpointError, LocalChat, RecordedChat
from scripted_chat import ScriptedChat

CHAT = [{"role": "user", "content": "Who?"}]
BUSY = Reply(b"slow down", 429)


class Scribe:
    """An engine that writes its tokens one after another, and is its own tokenizer."""

    shape = SimpleNamespace(eos=(0,))

    def __init__(self, *tokens):
        self.tokens = tokens
        self.tokenizer = self
        self.place = 0

    def __call__(self, text, **_):
        return {"input_ids": [0]}

    def decode(self, ids, **_):
        return "".join(self.tokens[i] for i in ids)

    def new_cache(self, slots):
        return None

    def extend(self, *_, **__):
        self.place += 1
        return SimpleNamespace(
            spans=[(0, 1)], last_logits=torch.eye(len(self.tokens))[[self.place]]
        )


def test_a_local_reply_is_its_first_line_up_to_the_line_end_inside_a_token():
    for tokens, reply in (((" Who", " left", "?\n", " More"), " Who left?"), (("\n\n", "Who"), "")):
        assert LocalChat(Scribe("", *tokens), "plain").replies(["Ask"], 4) == [reply]  # type: ignore[arg-type]


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that were waited, in place of waiting."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def test_a_chat_is_sent_as_the_interface_has_it_and_its_text_comes_back(
    pauses,
):
    with served([says(" Ada. \n")]) as server:
        assert (
            Endpoint(server.url, "secret", model="m").complete(CHAT, 7, temperature=0.5) == "Ada."
        )
    [request] = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == "Bearer secret"
    assert request["body"] == {"model": "m", "messages": CHAT, "max_tokens": 7, "temperature": 0.5}
    assert pauses == []


def test_without_a_key_none_is_sent_and_a_full_address_is_not_lengthened(
    pauses,
):
    with served([says("x")]) as server:
        Endpoint(f"{server.url}/chat/completions", model="m").complete(CHAT, 7)
    assert "Authorization" not in server.requests[0]["headers"]
    assert server.requests[0]["path"] == "/v1/chat/completions"


def test_the_endpoints_own_wish_is_kept_up_to_a_minute(pauses):
    wishes = [
        Reply(b"", 429, {"Retry-After": wish})
        for wish in ("9", "86400", "Wed, 21 Oct 2026 07:28:00 GMT")
    ]
    with served([*wishes, says("x")]) as server:
        Endpoint(server.url, model="m").complete(CHAT, 7)
    assert pauses == [9.0, 60.0, 4.0]


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_what_asking_again_does_not_mend_is_asked_once(status, pauses):
    with served([Reply(b"no such model", status, {"Location": "http://127.0.0.1:1/"})]) as server:
        with pytest.raises(EndpointError, match=f"HTTP {status} .*no such model$"):
            Endpoint(server.url, model="m").complete(CHAT, 7)
        assert len(server.requests) == 1
    assert pauses == []


def test_the_environment_describes_an_endpoint(monkeypatch):
    for name in ("URL", "MODEL", "KEY"):
        monkeypatch.delenv(f"X_{name}", raising=False)
    with pytest.raises(UserError, match="X_URL: is not set; it names the endpoint that judges"):
        Endpoint.from_environment("X", "judges")
    monkeypatch.setenv("X_URL", "http://h/v1")
    with pytest.raises(UserError, match="X_MODEL: is not set"):
        Endpoint.from_environment("X", "judges")
    monkeypatch.setenv("X_MODEL", "m")
    assert Endpoint.from_environment("X", "judges") == Endpoint("http://h/v1", model="m")
    monkeypatch.setenv("X_KEY", "k\n")
    assert Endpoint.from_environment("X", "judges") == Endpoint("http://h/v1", "k", model="m")


def test_a_key_is_not_shown():
    assert "secret" not in repr(Endpoint("http://h/v1", "secret", model="m"))
    with pytest.raises(UserError, match="its key holds characters") as caught:
        Endpoint("http://h/v1", "secret\n2", model="m")
    assert "secret" not in str(caught.value)


def test_another_version_of_a_model_replies_itself(tmp_path):
    chat = ScriptedChat(lambda request: f"{request} {chat.version}")
    for chat.version in ("1", "2"):
        assert RecordedChat(chat, tmp_path / "replies").replies(["A"], 9) == [f"A {chat.version}"]


def test_a_request_without_a_reply_is_made_again_by_the_next_run(tmp_path):
    path = tmp_path / "replies"
    busy = ScriptedChat(lambda request: None if request == "B" else request)
    first = RecordedChat(busy, path)
    assert [first.replies(requests, 9) for requests in (["A", "B"], ["B"])] == [["A", None], [None]]
    well = ScriptedChat(str)
    assert RecordedChat(well, path).replies(["A", "B"], 9) == ["A", "B"]
    assert (busy.requests, well.requests) == (["A", "B"], ["B"])
