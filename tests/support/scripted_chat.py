"""A model that replies as a function says."""

from collections.abc import Callable, Sequence

from ragauge.methods.evidence.chat import Chat, Replies


class ScriptedChat(Chat):
    """Replies as a function says, and records requests and cues."""

    def __init__(
        self, replies: Callable[[str], str | None], name: str = "scripted", opens: bool = False
    ) -> None:
        self.replying = replies
        self.name = name
        self.opens = opens
        self.requests, self.cues = list[str](), list[str]()

    def replies(
        self, requests: Sequence[str], max_tokens: int, cue: str = "", instruction: str = ""
    ) -> Replies:
        self.requests += requests
        self.cues.append(cue)
        return [self.replying(request) for request in requests]
