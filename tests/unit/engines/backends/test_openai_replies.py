"""Replies as servers really send them: the answer, its thoughts, or why there is none, over a real
connection.
"""

import json
import time

import pytest

from endpoints import Reply, chunk, served, sse, streams
from ragauge.engines import backend
from ragauge.engines.backends.openai import ASSISTANT, USER
from ragauge.engines.protocol import EngineLostError, Limits
from ragauge.errors import UserError
from ragauge.methods.evidence.chat import Endpoint

CHAT = f"{USER}Who?{ASSISTANT}"
USAGE = {"prompt_tokens": 50, "completion_tokens": 12}
STOP = chunk("stop")
HOLM = chunk(content="Greta Holm")


def text_chunks(*pieces, finish="stop"):
    return sse(*(chunk(content=piece) for piece in pieces), chunk(finish))


def ask(url, monkeypatch, prompt=CHAT, **served):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    engine = backend.load("openai:m", "openai", served={"attempts": 1, **served})
    with engine.tracing():
        return engine, engine.respond(prompt, Limits(5))


ANSWERS = {  # reply, pieces of thoughts
    "channel of vLLM and DeepSeek": (sse(chunk(reasoning_content="hm"), HOLM, STOP), 1),
    "channel of Ollama and OpenRouter": (sse(chunk(reasoning="hm", content=""), HOLM, STOP), 1),
    "both channels alike": (sse(chunk(reasoning="hm", reasoning_content="hm"), HOLM, STOP), 1),
    "marks": (text_chunks("<think>", "hm", "</think>", "\n\n", "Greta", " Holm"), 3),
    "marks across pieces": (text_chunks("<th", "ink>h", "m</thi", "nk>\nGreta", " Holm"), 4),
    "marks in one piece": (text_chunks("<think>\nhm\n</think>\n\nGreta Holm"), 1),
    "empty thoughts": (text_chunks("<think>\n\n", "</think>\n\n", "Greta Holm"), 2),
    "template that opens": (text_chunks("h", "m\nno", "</think>", "\n\nGreta", " Holm"), 3),
    "marks of Magistral": (text_chunks("[THINK]", "hm", "[/THINK]", "Greta Holm"), 3),
    "marks of gpt-oss": (
        text_chunks(
            "<|channel|>analysis<|message|>",
            "hm<|end|>",
            "<|start|>assistant<|channel|>final<|message|>Greta Holm",
        ),
        3,
    ),
    "an answer with a mark": (text_chunks("The mark <think>", " opens"), 0),
    "a closing mark behind a channel": (
        sse(chunk(reasoning="hm"), chunk(content="It is </think>"), STOP),
        1,
    ),
    "parts": (
        sse(
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            chunk(
                content=[
                    {"type": "text", "text": "Greta"},
                    {"type": "output_text", "text": " Holm"},
                ]
            ),
            STOP,
        ),
        1,
    ),
    "no end mark": (sse(HOLM, STOP, {"choices": [], "usage": USAGE}, done=False), 0),
    "no reason to end": (sse(chunk(content="Greta"), chunk(content=" Holm")), 0),
    "Azure": (
        sse(
            {"choices": [], "prompt_filter_results": [{}]},
            chunk(role="assistant", content=""),
            HOLM,
            STOP,
        ),
        0,
    ),
    "a choice without delta": (
        sse({"choices": [{"content_filter_offsets": {}, "finish_reason": None}]}, HOLM, STOP),
        0,
    ),
    "nulls": (
        sse(
            {"choices": [{"delta": None}]},
            {"choices": None},
            chunk(content=None),
            HOLM,
            {**STOP, "error": None},
        ),
        0,
    ),
    "carriage returns, comments, names, no blanks": (
        Reply(
            b": ping\r\n\r\nevent: message\r\nid: 7\r\nretry: 10\r\ndata:\r\n\r\n"
            b"data:" + json.dumps(HOLM).encode() + b"\r\n\r\n: ping\r\n\r\n"
            b"data:" + json.dumps(STOP).encode() + b"\r\n\r\ndata:[DONE]\r\n\r\n"
        ),
        0,
    ),
    "a character in two halves": (sse(chunk(content="a \ud83d"), chunk(content="\ude42"), STOP), 0),
    "half a character": (sse(chunk(content="a \ud83d"), STOP), 0),
    "line ends in front": (text_chunks("\n", "\nGreta Holm"), 0),
    "text completion": (sse({"choices": [{"text": "Greta"}]}, {"choices": [{"text": " Holm"}]}), 0),
    "not a stream": (
        Reply(b'\n{\n "choices": [{"message": {"content": "Greta Holm", "reasoning": "hm"}}]}'),
        1,
    ),
}
OTHERS = {  # answers that are not the usual one
    "an answer with a mark": "The mark <think> opens",
    "a closing mark behind a channel": "It is </think>",
    "a character in two halves": "a 🙂",
    "half a character": "a \ufffd",
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_answer_of_a_reply_is_told_from_the_rest(case, monkeypatch):
    reply, thoughts = ANSWERS[case]
    answer = OTHERS.get(case, "Greta Holm")
    with served([reply]) as server:
        engine, response = ask(server.url, monkeypatch)
        judge = Endpoint(server.url, model="m", attempts=1).complete([], 5)
    assert engine.tokenizer.decode(response.ids) == answer == judge
    assert engine.exchange.thought_tokens == thoughts
    assert engine.exchange.thought_tokens_source == ("pieces" if thoughts else None)
    assert engine.exchange.remarks == (["not streamed"] if "not a stream" in case else [])
    assert engine.exchange.first_answer_s == response.token_s[0]
    assert engine.exchange.token_s[0] <= response.token_s[0]


NO_ANSWER = {
    "thoughts alone": (
        sse(chunk(reasoning="t"), chunk("length", reasoning="u")),
        "unfinished: all 2 new tokens",
    ),
    "an open mark": (
        text_chunks("<think>", "hm", finish="length"),
        "unfinished: all 2 new tokens were thoughts",
    ),
    "hidden thoughts": (
        sse(
            {
                **chunk("length"),
                "usage": {**USAGE, "completion_tokens_details": {"reasoning_tokens": 12}},
            }
        ),
        r"unfinished: all 12 new tokens were thoughts \(the response ended with 'length'\); allow more",
    ),
    "refusal": (sse(chunk(refusal="I can"), chunk(refusal="not."), STOP), r"refused: I cannot\.$"),
    "refusal as a part": (
        sse(chunk(content=[{"type": "refusal", "refusal": "No."}]), STOP),
        r"refused: No\.$",
    ),
    "tool": (
        sse(
            chunk(content="Let me look."),
            chunk("tool_calls", tool_calls=[{"function": {"name": "search"}}]),
        ),
        r"called a tool in place of an answer \(the response ended with 'tool_calls'\)$",
    ),
    "function": (sse(chunk(function_call={"name": "search"}), STOP), "called a tool"),
    "filter": (
        sse(chunk(content="Greta"), chunk("content_filter")),
        "a content filter ended the response",
    ),
    "filter of another": (sse(chunk("SAFETY")), "a content filter ended the response"),
    "nothing": (
        sse(chunk(content=""), STOP),
        r"the answer is empty \(the response ended with 'stop'\)$",
    ),
    "blanks": (text_chunks(" ", "\n"), "the answer is empty"),
    "whole": (
        Reply(b'{"choices": [{"message": {"content": null, "refusal": "No."}}]}'),
        "refused: No",
    ),
}


@pytest.mark.parametrize("case", NO_ANSWER)
def test_a_reply_without_an_answer_says_why(case, monkeypatch):
    reply, reason = NO_ANSWER[case]
    with served([reply]) as server:
        with pytest.raises(UserError, match=reason) as caught:
            ask(server.url, monkeypatch)
        assert len(server.requests) == 1
    assert not isinstance(caught.value, EngineLostError)


BROKEN = {
    "no reason to end, no end mark": (sse(HOLM, done=False), "broke off before its end"),
    "an error in the stream": (
        sse(HOLM, {"error": {"message": "out of slots"}}),
        "holds an error: out of slots",
    ),
    "an error behind the answer": (sse(HOLM, STOP, {"error": "gone"}), "holds an error: gone"),
    "an error in place of a stream": (Reply(b'{"error": {"message": "no"}}'), "holds an error: no"),
    "an error of old vLLM": (Reply(b'{"object": "error", "message": "no"}'), "holds an error: no"),
    "an abort": (sse(HOLM, chunk("abort")), "broke the response off: abort"),
    "no choice": (Reply(b'{"choices": []}'), "holds no completion"),
    "nesting": (sse(chunk(content=[[[[[[[[[["x"]]]]]]]]]])), "holds no completion"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_reply_is_asked_for_again(case, monkeypatch):
    reply, problem = BROKEN[case]
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with served([reply, streams("Greta Holm")]) as server:
        engine, response = ask(server.url, monkeypatch, attempts=2)
        assert engine.tokenizer.decode(response.ids) == "Greta Holm"
        assert engine.exchange.attempts == 2
    with served([reply]) as server, pytest.raises(EngineLostError, match=problem):
        ask(server.url, monkeypatch)


def refuse(*keys, status=400, instead=""):
    """What a server says that refuses keys one after another, each by its name; else it answers."""

    def reply(body):
        key = next((key for key in keys if key in body), None)
        words = f"Unsupported parameter: '{key}' is not supported. {instead and f'Use {instead!r} instead.'}"
        return Reply(words.encode(), status) if key else streams("Greta Holm")

    return reply


@pytest.mark.parametrize(
    ("reply", "remarks"),
    [
        (refuse("stream_options", status=422), ("without stream_options",)),
        (
            refuse("max_tokens", instead="max_completion_tokens"),
            ("max_completion_tokens in place of max_tokens",),
        ),
        (refuse("stop"), ("without stop",)),
        (refuse("stream_options", "stop"), ("without stream_options", "without stop")),
    ],
)
def test_a_key_that_the_server_refuses_is_left_out_once_for_all(reply, remarks, monkeypatch):
    with served(whole=reply) as server:
        engine, response = ask(server.url, monkeypatch, prompt="Who?")
        assert engine.tokenizer.decode(response.ids) == "Greta Holm"
        assert engine.exchange.remarks == list(remarks)
        assert engine.exchange.attempts == len(server.requests) == 1 + len(remarks)
        engine.respond("Who?", Limits(5))
        assert engine.exchange.attempts == 1
        last = server.requests[-1]["body"]
        assert last.get("max_tokens", last.get("max_completion_tokens")) == 5


def test_a_refusal_for_another_reason_changes_no_later_request(
    monkeypatch,
):
    refusal = Reply(
        b"'max_tokens' or 'max_completion_tokens' is too large, the context has 10", 400
    )
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with served([refusal, refusal, streams("Greta Holm")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        engine = backend.load("openai:m", "openai")
        with pytest.raises(UserError, match="is too large"):
            engine.respond("Who?", Limits(5))
        engine.respond("Who?", Limits(5))
    assert engine.exchange.remarks == []
    assert server.requests[-1]["body"]["max_tokens"] == 5


def obeying(text):
    """A server whose model writes this text, and which obeys stop strings in thoughts too, as
    servers do.
    """

    def reply(body):
        return (
            text_chunks(*text.split("\n", 1)[0:1])
            if "stop" in body
            else text_chunks(*text.split(" "))
        )

    return reply


def test_a_line_end_in_thoughts_does_not_end_the_response(monkeypatch):
    with served(whole=obeying("Okay, \nso </think>\n\n Greta")) as server:
        engine, _ = ask(server.url, monkeypatch)
        assert engine.tokenizer.decode(engine.respond(CHAT, Limits(5)).ids) == "Greta"
        assert not any("stop" in request["body"] for request in server.requests)
    with served(whole=obeying("Greta \nHolm")) as server:
        engine, _ = ask(server.url, monkeypatch)
        engine.respond(CHAT, Limits(5))
        # it does not think
        assert ["stop" in request["body"] for request in server.requests] == [False, True]
    replies = [
        streams("Greta"),
        text_chunks("<think>"),
        text_chunks("<think>\n", "</think>", "Holm"),
    ]
    with served(replies) as server:
        engine, _ = ask(server.url, monkeypatch)
        # it thinks now and then
        assert engine.tokenizer.decode(engine.respond(CHAT, Limits(5)).ids) == "Holm"
        assert engine.exchange.remarks == ["without stop"]


# --- a run ---
