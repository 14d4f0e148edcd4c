"""Replies of OpenAI-compatible servers, streamed or whole, with the answer apart from thoughts,
refusals and tools.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Literal, NamedTuple, Self

from ragauge.engines.served.http import Reply, json_object
from ragauge.io.jsonl import JsonObject

Channel = Literal["answer", "thought", "refusal", "tool"]
CountSource = Literal["server", "pieces"]

# servers fill one, or several alike
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
# fields of a part of a content that may hold text
PARTS = ("text", "content", "refusal", "summary", *THOUGHTS)
MARKS = {
    f"<{name}>": f"</{name}>"
    for name in ("think", "thinking", "thought", "reasoning", "seed:think")
}
MARKS |= {"[THINK]": "[/THINK]", "◁think▷": "◁/think▷"}
MARKS["<|channel|>analysis<|message|>"] = "<|channel|>final<|message|>"  # of gpt-oss
OPENING = re.compile(rf"\s*({'|'.join(map(re.escape, MARKS))})")
CLOSING = re.compile("|".join(map(re.escape, MARKS.values())))
# Reasons to end, in lower case.
BROKEN = {"abort", "error", "insufficient_system_resource"}  # the server's trouble
FILTERED = {
    "content_filter",
    "safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "refusal",
    "sensitive",
}
TOOLS = {"tool_calls", "function_call", "tool_use"}
MAX_LINE = 4 << 20  # bytes, as of a whole reply in one
TORN = "the stream broke off before its end"


class Piece(NamedTuple):
    """A piece of text, mostly a token."""

    channel: Channel
    text: str
    at: float  # when it arrived, by `time.perf_counter()`


@dataclass
class Completion:
    """A reply as it arrived."""

    pieces: list[Piece] = field(default_factory=list)
    usage: JsonObject = field(default_factory=dict)
    finish: str | None = None  # why it ended, in the server's words
    ended: float = 0.0  # when the last piece arrived; counts may follow
    events: int = 0  # 1: the reply was not streamed
    stack: str = ""  # the server's name for itself
    model: str = ""  # that the server says it answers with
    timings: JsonObject = field(default_factory=dict)  # of llama.cpp, by its own clock

    def add(self, event: JsonObject) -> None:
        """Add an event of a stream, or a whole reply.

        Raises:
            ValueError: it reports an error.
        """
        if error := event.get("error") or (event.get("object") == "error" and event):
            words = (isinstance(error, Mapping) and error.get("message")) or error
            raise ValueError(f"the reply holds an error: {str(words)[:4096]}")
        now = time.perf_counter()
        self.ended = self.ended if self.pieces else now
        self.events += 1
        self.usage = _object(event.get("usage")) or self.usage
        self.timings = _object(event.get("timings")) or self.timings
        self.model = str(event.get("model") or self.model)
        choices = event.get("choices")
        choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
        message = _object(choice.get("delta")) or _object(choice.get("message")) or choice
        self._add("thought", next(filter(None, map(message.get, THOUGHTS)), None), now)
        self._add("answer", message.get("text" if message is choice else "content"), now)
        self._add("refusal", message.get("refusal"), now)
        if message.get("tool_calls") or message.get("function_call"):
            self._add("tool", "call", now)
        if reason := choice.get("finish_reason"):
            self.finish = str(reason)

    def _add(self, channel: Channel, value: Any, now: float) -> None:
        for part_channel, text in _texts(value, channel):
            if self.pieces:
                last = self.pieces[-1]
                # half a character
                if last.channel == part_channel and "\ud800" <= last.text[-1:] <= "\udbff":
                    self.pieces[-1] = last._replace(text=last.text[:-1])
                    text = last.text[-1] + text
            self.pieces.append(Piece(part_channel, text, now))
            self.ended = now

    def checked(self) -> Self:
        """The reply itself.

        Raises:
            ValueError: it was broken off or holds no completion.
        """
        if self.finish in BROKEN:
            raise ValueError(f"the server broke the response off: {self.finish}")
        if self.finish is None and not self.pieces:
            raise ValueError("the reply holds no completion")
        return self

    def split(self) -> tuple[list[Piece], list[Piece]]:
        """(answer, thoughts): thoughts have a channel of their own or stand between marks in front
        of the answer.
        """
        thoughts = self._of_channel("thought")
        content = self._of_channel("answer")
        thought_end, start = _answer_start("".join(piece.text for piece in content), bool(thoughts))
        answer = []
        end = 0
        for piece in content:
            begin = end
            end += len(piece.text)
            if begin < thought_end:
                thoughts.append(piece._replace(text=piece.text[: thought_end - begin]))
            if end > start:
                answer.append(piece._replace(text=_valid(piece.text[max(0, start - begin) :])))
        return answer, thoughts

    def _of_channel(self, channel: Channel) -> list[Piece]:
        return [piece for piece in self.pieces if piece.channel == channel]

    @property
    def new_tokens(self) -> int | None:
        """Tokens by the server's count; None where it states none."""
        return count(self.usage, "completion_tokens") or count(self.timings, "predicted_n") or None

    def thought_tokens(self) -> tuple[int, CountSource | None]:
        """Tokens of the thoughts by the server's count, else their pieces, and which of the two;
        (0, None): none.
        """
        pieces = len(self.split()[1])
        if counted := count(self.usage.get("completion_tokens_details"), "reasoning_tokens"):
            return counted, "server"
        return pieces, "pieces" if pieces else None

    def problem(self) -> str | None:
        """Why there is no answer; None where there is one."""
        thoughts = self.thought_tokens()[0]
        ended = f"(the response ended with {self.finish or 'no reason'!r})"
        if refusal := text_of(self._of_channel("refusal")):
            return f"refused: {refusal[:200]}"
        if self.finish in TOOLS or self._of_channel("tool"):
            return f"the model called a tool in place of an answer {ended}"
        if self.finish and self.finish.lower() in FILTERED:
            return f"a content filter ended the response {ended}"
        if text_of(self.split()[0]):
            return None
        if thoughts:
            return f"unfinished: all {thoughts} new tokens were thoughts {ended}; allow more new tokens"
        return f"the answer is empty {ended}"


@dataclass
class Reading:
    """A completion while its lines arrive: server-sent events, or one JSON object."""

    completion: Completion
    whole: list[bytes] = field(default_factory=list)  # lines of a JSON object
    rest: bytes = b""  # of a line that has not ended yet

    def feed(self, piece: bytes) -> bool:
        """Add bytes as they arrive; returns whether the end mark is among them.

        Raises:
            ValueError: as `add`, and if a line is too long.
        """
        *lines, self.rest = (self.rest + piece).split(b"\n")
        if len(self.rest) > MAX_LINE:
            raise ValueError(f"the reply holds a line of more than {MAX_LINE:,} bytes")
        return any(self.add(line) for line in lines)

    def add(self, line: bytes) -> bool:
        """Add a line; returns whether it is the end mark.

        Raises:
            ValueError: it is no event, or reports an error.
        """
        if self.whole or line.startswith((b"{", b"<", b"[")):
            self.whole.append(line)
        elif line.startswith(b"data:") and (event := line.removeprefix(b"data:").strip()):
            if event == b"[DONE]":
                return True
            self.completion.add(json_object(event, "an event of the stream"))
        return False

    def end(self, torn: Exception | None = None) -> Completion:
        """The completion after the last line, or where the reply was `torn`: complete all the same
        if only the end mark is missing. Raises ValueError, or the error that tore it: it is no
        completion, or breaks off.
        """
        if not torn:
            self.add(self.rest)
        if self.whole and not torn:
            whole = b"\n".join(self.whole)
            self.completion.add(json_object(whole, "the reply is not a stream of events and"))
        elif self.completion.finish is None and (torn or self.completion.pieces):
            raise torn or ValueError(TORN)
        return self.completion.checked()


def read_completion(reply: Reply) -> Completion:
    """Read a chat or text completion, streamed or whole.

    Raises:
        ValueError: it is none, breaks off before a reason to end, or the server reports an error in
            it.
    """
    reading = Reading(Completion(stack=reply.headers.get("Server") or ""))
    try:
        if any(map(reading.feed, reply.pieces)):
            return reading.completion.checked()
    except (OSError, HTTPException) as error:
        return reading.end(error)
    return reading.end()


def read_models(reply: Reply) -> tuple[str, list[JsonObject]]:
    """(the server's name for itself, the entries of its list of models).

    Raises:
        ValueError: it is no JSON object.
    """
    listed = json_object(b"".join(reply.pieces), "the reply").get("data")
    entries = list(map(_object, listed)) if isinstance(listed, list) else []
    return reply.headers.get("Server") or "", entries


def text_of(pieces: Sequence[Piece]) -> str:
    """The text of pieces, without white space at its ends."""
    return _valid("".join(piece.text for piece in pieces)).strip()


def count(counts: Any, name: str) -> int | None:
    """A count of tokens in a server's reply; None where it does not say."""
    value = _object(counts).get(name)
    return value if type(value) is int and value >= 0 else None


def _object(value: Any) -> JsonObject:
    """A JSON object as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def _texts(value: Any, channel: Channel, depth: int = 0) -> Iterator[tuple[Channel, str]]:
    """Yield (channel, text) of a content: a text, or parts in lists and objects."""
    if depth > 8:
        return
    if isinstance(value, str) and value:
        yield channel, value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, channel, depth + 1)
    elif isinstance(value, dict):
        if any(name in str(value.get("type")) for name in ("think", "reason", "summary")):
            channel = "thought"
        for key in PARTS:
            yield from _texts(value.get(key), "refusal" if key == "refusal" else channel, depth + 1)


def _answer_start(text: str, apart: bool) -> tuple[int, int]:
    """(end of the thoughts between marks, start of the answer) in a content; `apart`: others had a
    channel.
    """
    end = 0
    while opening := OPENING.match(text, end):
        closing = text.find(MARKS[opening[1]], opening.end())
        if closing < 0:
            return len(text), len(text)
        end = closing + len(MARKS[opening[1]])
    # the chat template wrote the opening mark
    if not (end or apart) and (close := CLOSING.search(text)):
        end = close.end()
    start = len(text) - len(text[end:].lstrip())
    is_dropped = end or apart or "\n" in text[end:start]
    return end, start if is_dropped else end


def _valid(text: str) -> str:
    """A text whose surrogate pairs are characters, and other surrogates replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
