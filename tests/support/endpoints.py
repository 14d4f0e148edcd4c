"""A local HTTP server in place of a language model's endpoint, which answers as it is told."""

import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from served_site import Quiet, running


@dataclass(frozen=True)
class Reply:
    """One HTTP response."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def says(text):
    """A chat completion with this content."""
    return Reply(
        json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    )


def streams(*pieces, done=True, **usage):
    """A streamed chat completion in these pieces; `done=False`: torn before its end."""
    choices = [{"delta": {"role": "assistant", "content": None}}]
    choices += [{"delta": {"content": piece}, "text": piece} for piece in pieces]
    choices += [{"delta": {}, "finish_reason": "stop"}] if done else []
    events = [json.dumps({"choices": [choice]}) for choice in choices]
    events += [json.dumps({"choices": [], "usage": usage})] if usage else []
    text = "".join(f"data: {event}\n\n" for event in [*events, *(["[DONE]"] if done else [])])
    return Reply(text.encode(), headers={"Content-Type": "text/event-stream"})


def entries(place, key, values):
    """What encoders and rerankers reply: an entry for each text."""
    rows = [{"index": i, key: value} for i, value in enumerate(values)]
    return Reply(json.dumps({place: rows}).encode())


def sse(*events, done=True):
    """A stream of these events as they are."""
    return Reply(
        "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
        + b"data: [DONE]\n\n" * done
    )


def chunk(finish=None, **delta):
    """An event of a streamed chat completion."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@dataclass
class Served:
    """A running server and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)  # path, headers, body

    @property
    def turns(self):
        """The first message of each request for a chat."""
        return [request["body"]["messages"][0]["content"] for request in self.requests]


@contextmanager
def served(
    replies=(),
    whole=None,
    tls=None,
    facts=None,
):
    """Serve the replies in turn, the last one for ever, or what a function of the last message or
    the prompt says.

    `whole` is a function of the request's body.

    `facts`: path -> the JSON object that the server says of itself there.

    A reply with status 0 closes the connection without a word.
    """
    left = [] if callable(replies) else list(replies)

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in (facts or {}):
                return self.send_error(404)
            return self.reply(json.dumps(facts[self.path]).encode())

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            if whole:
                reply = whole(body)
            elif callable(replies):
                reply = replies(
                    body["messages"][-1]["content"] if "messages" in body else body["prompt"]
                )
            else:
                reply = left.pop(0) if len(left) > 1 else left[0]
            if reply.status == 0:
                self.close_connection = True
            else:
                self.reply(reply.body, reply.status, reply.headers)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True) if tls else server.socket
    found = Served(f"http{'s' * bool(tls)}://127.0.0.1:{server.server_address[1]}/v1")
    with running(server):
        yield found
