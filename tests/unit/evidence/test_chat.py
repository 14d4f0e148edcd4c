"""Models that reply: side by side as alone, behind an endpoint, and recorded in a file."""

from __future__ import annotations

import tiny_models
from endpoints import says, served
from ragauge.evidence.chat import EndpointChat, LocalChat
from ragauge.evidence.endpoint import Endpoint


def test_a_local_model_replies_side_by_side_as_alone() -> None:
    chat = LocalChat(tiny_models.tiny_lm(), "chat", "tiny")
    requests = ["Tea?", "Where is it grown, and by whom?"]
    together = chat.replies(requests, 8, cue="Question:")
    assert together == [chat.replies([one], 8, cue="Question:")[0] for one in requests]


def test_an_endpoint_replies_to_each_request() -> None:
    with served([says("Where is tea grown?")] * 2) as server:
        chat = EndpointChat(Endpoint(server.url, model="writer", pause_s=0))
        assert chat.replies(["a", "b"], 40, instruction=" Alone.") == ["Where is tea grown?"] * 2
    assert chat.name == "writer"
