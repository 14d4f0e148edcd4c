"""One request, one short reply: models that write questions and answer them, on this machine or behind an endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ragauge.engines.protocol import Row, SpanEngine
from ragauge.evidence.endpoint import Endpoint, EndpointError
from ragauge.evidence.writing import write
from ragauge.prompts import unit_steps
from ragauge.prompts.templates import wrapper


class Chat(ABC):
    """A model that replies to requests; `name` is what reports call it."""

    name: str
    opens: bool = False  # whether a cue opens the reply, which goes on from it

    @abstractmethod
    def replies(self, requests: Sequence[str], most: int, cue: str = "", otherwise: str = "") -> list[str | None]:
        """The first line of the reply to each request; None where there was none.

        Args:
            most: tokens of a reply.
            cue: what the reply begins with, where a model lets it be given.
            otherwise: what is added to the request where it does not.

        Raises:
            UserError: no request got a reply.
        """


@dataclass(frozen=True)
class LocalChat(Chat):
    """A decoder on this machine, several requests side by side in every pass, greedily."""

    engine: SpanEngine
    template: str  # how the model's prompts are wrapped
    name: str = ""
    opens = True

    @torch.inference_mode()
    def replies(self, requests: Sequence[str], most: int, cue: str = "", otherwise: str = "") -> list[str | None]:
        prompts = [self.ids(request, cue) for request in requests]
        cache = self.engine.new_cache(sum(map(len, prompts)) + len(prompts) * most)
        rows = [Row(ids, unit_steps(0, len(ids))) for ids in prompts]
        written = write(
            self.engine, cache, rows, most=[most] * len(prompts), ended=self._ends, stage="question", tree=False
        )
        return [self.engine.tokenizer.decode(ids, skip_special_tokens=True) for ids in written]

    def _ends(self, token: int) -> bool:
        return token in self.engine.shape.eos or "\n" in self.engine.tokenizer.decode([token])

    def ids(self, request: str, cue: str) -> list[int]:
        """A request in the template, and how the reply begins."""
        opening, task = wrapper(self.template, self.engine.tokenizer)
        special = self.template != "chat"  # a chat template writes its own begin-of-text
        found: list[int] = self.engine.tokenizer(f"{opening}{request}{task}{cue}", add_special_tokens=special)[
            "input_ids"
        ]
        return found


@dataclass(frozen=True)
class EndpointChat(Chat):
    """A model behind an endpoint, asked request by request; its error is raised where no request gets a reply."""

    endpoint: Endpoint

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.endpoint.model

    def replies(self, requests: Sequence[str], most: int, cue: str = "", otherwise: str = "") -> list[str | None]:
        replies: list[str | None] = []
        problem: EndpointError | None = None
        for request in requests:
            try:
                replies.append(self.endpoint.complete([{"role": "user", "content": request + otherwise}], most))
            except EndpointError as error:
                replies.append(None)
                problem = error
        if problem and not any(replies):
            raise problem
        return replies
