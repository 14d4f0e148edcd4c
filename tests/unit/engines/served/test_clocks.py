"""Random streams against the clock that they were sent by: bundled, cut anywhere, with late counts or
none. A speed is exact, or comes with a remark.
"""

import json
import random
from types import SimpleNamespace

import pytest

from endpoints import chunk
from ragauge.engines import backend
from ragauge.engines.served import completions
from ragauge.engines.served.completions import Completion, Reading
from ragauge.io.records import ServedResponse

SENT = 100.0


class RandomStream:
    """A response of some tokens, each at a moment of its own, as a server with random habits sends
    it.
    """

    def __init__(self, rng):
        self.tokens = rng.randrange(1, 30)
        moments = [SENT + rng.uniform(0.05, 1)]
        for _ in range(self.tokens - 1):
            moments.append(moments[-1] + rng.uniform(0.001, 0.1))
        size = rng.choice([1, 1, 2, 4])
        self.ends = sorted({*range(size - 1, self.tokens, size), self.tokens - 1})
        self.text_at = [moments[end] for end in self.ends]
        self.is_bundled = len(self.ends) < self.tokens
        self.ends_itself = rng.random() < 0.3  # by a token without text
        self.counts = rng.choice(["usage", "timings", "each event", "none", "too few"])
        key = rng.choice(["content", "reasoning"])
        self.events = [(SENT + 0.01, chunk(role="assistant", content=""))]
        counted = 0
        for end, at in zip(self.ends, self.text_at, strict=True):
            text = "".join(f" w{i}" for i in range(counted, end + 1))
            counted = end + 1
            self.events.append((at, chunk(**{key: text}) | self.usage(counted)))
        finish = "stop" if self.ends_itself else "length"
        late = moments[-1] + rng.choice([0.0, 0.4, 3.0])
        total = self.tokens + self.ends_itself
        ending = {"timings": {"predicted_n": total}} if self.counts == "timings" else {}
        self.events.append((late, chunk(finish) | ending | self.usage(total)))
        if self.counts in ("usage", "too few"):
            few = rng.randrange(1, max(2, len(self.ends)))
            usage = {"usage": {"completion_tokens": few if self.counts == "too few" else total}}
            self.events.append((late + rng.choice([0, 0.5]), {"choices": [], **usage}))

    def usage(self, count):
        every = self.counts == "each event"
        return {"usage": {"completion_tokens": count}} if every else {}

    def segments(self, rng):
        """(moment, bytes) as they arrive, cut anywhere within the time of the event."""
        for at, event in self.events:
            end = rng.choice(["\n\n", "\r\n\r\n"])
            data = f"data: {json.dumps(event)}{end}".encode()
            data = rng.choice([b"", b": ping\n\n"]) + data
            cuts = sorted(rng.sample(range(1, len(data)), rng.randrange(4)))
            for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
                yield at, data[start:stop]
        yield at, b"data: [DONE]\n\n"


@pytest.fixture
def read(monkeypatch):
    """Read a random stream as the client does, by the stream's own clock."""
    clock = SimpleNamespace(at=0.0)
    monkeypatch.setattr(completions, "time", SimpleNamespace(perf_counter=lambda: clock.at))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    engine = backend.load("openai:m", "openai")

    def read(segments) -> tuple[Completion, ServedResponse]:
        reading = Reading(Completion())
        for at, data in segments:
            clock.at = at
            if reading.feed(data):
                break
        completion = reading.completion.checked()
        return completion, engine._exchange(completion, [SENT])

    return read


def test_no_speed_is_wrong_in_silence(read):
    seen = set()
    for seed in range(2000):
        rng = random.Random(seed)
        stream = RandomStream(rng)
        completion, response = read(stream.segments(rng))
        first, last = stream.text_at[0], stream.text_at[-1]
        assert completion.ended == last, seed
        assert response.token_s[0] == pytest.approx(first - SENT)
        exact = (last - first) / (stream.tokens - 1) if stream.tokens > 1 else None
        if stream.counts == "none":
            assert (response.per_token_s, response.counting) == (
                None,
                "the server counts no tokens",
            )
        elif stream.counts == "too few":
            is_right = response.new_tokens == stream.tokens
            assert is_right or response.counting != "" or response.per_token_s is None
        elif stream.is_bundled:
            assert response.counting == "several tokens in one event"
            assert (response.per_token_s is None) == (first == last)
        else:
            assert response.counting == ""
            assert response.per_token_s == (exact and pytest.approx(exact)), seed
        seen.add((stream.counts, stream.is_bundled, stream.ends_itself))
    assert len(seen) == 20
