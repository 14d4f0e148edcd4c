"""A model that replies as a function says."""

from ragauge.methods.evidence.chat import Chat


class ScriptedChat(Chat):
    """Replies as a function says, and records requests and cues."""

    def __init__(self, replies, name="scripted", opens=False):
        self.replying = replies
        self.name = name
        self.opens = opens
        self.requests, self.cues = [], []

    def replies(self, requests, max_tokens, cue="", instruction=""):
        self.requests += requests
        self.cues.append(cue)
        return [self.replying(request) for request in requests]
