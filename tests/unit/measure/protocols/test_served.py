"""Time, load and streams of a served model: against llama.cpp's own server, and a stand-in that
misbehaves.
"""

import json
import os
import re
import socket
import ssl
import time
from contextlib import nullcontext

import pytest

from endpoints import Reply, chunk, sse
from endpoints import served as serving
from ragauge.cli._main import main
from ragauge.engines.served.completions import Completion, Piece
from ragauge.measure.servers import serving as started
from ragauge.methods.base.method import STATES
from ragauge.results.times import LatencyTimes
from ragauge.testing import write_questions

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return [
        "--dataset",
        "nq_open",
        "--data",
        str(write_questions(tmp_path_factory.mktemp("data") / "questions.jsonl")),
    ]


@pytest.fixture(scope="module")
def llama():
    """llama.cpp's server, whose address stands in the environment."""
    pytest.importorskip("xllamacpp")
    with started("llama.cpp", "smollm2-135m-instruct", threads=1) as url:
        yield url


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setattr("ragauge.measure.protocols.served.PAUSE_S", 0.01)
    if "OPENAI_API_KEY" not in os.environ:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)


def measured(verb, out, *options, model="openai:m"):
    assert main([verb, "--model", model, *options, "--out", str(out)]) == 0
    assert KEY not in out.read_text()
    return json.loads(out.read_text())


def tokens(number, model="m", cached=0):
    """A streamed reply of so many tokens, with counts as vLLM and SGLang state them."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": number,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    events = [chunk(content="x") for _ in range(number)] + [
        chunk("length"),
        {"choices": [], "usage": usage},
    ]
    return sse(*({**event, "model": model} for event in events))


# --- llama.cpp ---


def test_times_agree_with_llama_cpps_own(llama, data, tmp_path):
    options = [
        *data,
        "--methods",
        "naive,superposition",
        "--trials=2",
        "--warmup=1",
        "--new-tokens=8",
    ]
    result = measured("time", tmp_path / "time.json", *options, "--prompts=2")
    assert result["unsupported"] == {"superposition": "requires an engine with key-value caches"}
    assert len(result["rows"]) == 2
    for row in result["rows"]:
        assert row["new_tokens"] == 8
        assert row["first_token_s"] == pytest.approx(
            row["server"]["first_token_s"], rel=0.05, abs=0.02
        )
        assert row["per_token_s"] == pytest.approx(
            row["server"]["per_token_s"], rel=0.05, abs=0.005
        )
        assert row["cached_tokens"] < 64  # the chat template's own beginning
        assert row["total_s"] == pytest.approx(row["first_token_s"] + 7 * row["per_token_s"])
    assert {row["model"] for row in result["rows"]} == {"smollm2-135m-instruct"}
    warm = measured("time", tmp_path / "warm.json", *options, "--prompts=1", "--server-cache=warm")
    assert warm["server"]["cached_share"] > 0.9
    assert (
        warm["states"]["set"]["summary"]["naive"]["first_token_s"]["median"]
        < result["states"]["documents"]["summary"]["naive"]["first_token_s"]["median"]
    )
    assert warm["protocol"]["cache"] == "warm"


def test_a_started_server_ends_and_leaves_the_environment_as_it_was(data, tmp_path, monkeypatch):
    pytest.importorskip("xllamacpp")
    before = {name: value for name, value in os.environ.items() if name.startswith("OPENAI_")}
    options = [
        *data,
        "--methods=naive",
        "--trials=1",
        "--new-tokens=2",
        "--prompts=1",
        "--threads=1",
    ]
    result = measured(
        "time",
        tmp_path / "x.json",
        *options,
        "--serve",
        "llama.cpp",
        model="openai:smollm2-135m-instruct",
    )
    assert result["server"]["first_token_s"] > 0
    assert {
        name: value for name, value in os.environ.items() if name.startswith("OPENAI_")
    } == before
    started = []
    monkeypatch.setattr(
        "ragauge.measure.servers.serving", lambda *given: started.append(given) or nullcontext()
    )
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual/bridge.txt").write_text("The bridge was opened in 1821.\n")
    (tmp_path / "questions.csv").write_text("question,answers\nWhen was the bridge opened?,1821\n")
    study = [
        "--documents",
        str(tmp_path / "manual"),
        "--questions",
        str(tmp_path / "questions.csv"),
        "--no-run",
    ]
    served = [
        "--model=openai:smollm2-135m-instruct",
        "--serve=llama.cpp",
        "--out",
        str(tmp_path / "study"),
    ]
    assert main(["study", *study, *served]) == 0
    assert started == [("llama.cpp", "smollm2-135m-instruct", None, "OPENAI")]
    assert "source: openai:smollm2-135m-instruct" in (tmp_path / "study/config.yaml").read_text()


def test_load_and_streams_on_llama_cpp(llama, data, tmp_path, capsys, monkeypatch):
    options = [*data, "--methods=naive", "--requests=3", "--new-tokens=2"]
    levels = ["--rates=4", "--clients=2", "--warmup=1", "--prompts=1", "--target-first-token-s=60"]
    result = measured("load", tmp_path / "load.json", *options, *levels)
    for level in result["levels"]:
        assert level["summary"]["requests"] == 3
        assert level["summary"]["good_share"] == 1
        assert [row["new_tokens"] for row in level["requests"]] == [2] * 4
    closed = result["levels"][1]["requests"]
    assert closed[2]["arrival_at_s"] == pytest.approx(
        min(row["end_at_s"] for row in closed[:2]), abs=0.02
    )
    assert closed[1]["start_at_s"] < closed[0]["end_at_s"]  # both were under way
    monkeypatch.setattr("ragauge.measure.protocols.stream.PROBES", 1)
    result = measured(
        "stream", tmp_path / "stream.json", *options, "--documents=2", "--questions=3"
    )
    [stream] = result["streams"]
    assert (stream["found_s"] < stream["missed_s"], stream["probes"]) == (True, 1)
    assert stream["requests"][0]["found"] < 0.5 < max(row["found"] for row in stream["requests"])
    assert f"naive: found {stream['hit_rate']:.0%}" in capsys.readouterr().out
    assert result["protocol"]["cache_state"].startswith("a stream begins with nothing cached")


# --- servers in trouble ---


@pytest.mark.parametrize(
    ("cache", "replies", "expected"),
    [
        (
            "cold",
            [tokens(3, cached=90)],
            "the server's cache had 90% of the prompts, which were to be cold",
        ),
        (
            "warm",
            [tokens(3, cached=10)],
            "the server's cache had 10% of the prompts, which were to be warm",
        ),
        ("found", [tokens(3, cached=90)], None),
        (
            "cold",
            [tokens(3)] * 3 + [tokens(3, "other")],
            "the server changed its model while it was measured: m, other",
        ),
    ],
)
def test_the_declared_cache_is_checked_and_the_model_stays(
    cache,
    replies,
    expected,
    data,
    tmp_path,
    monkeypatch,
):
    with serving(replies) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = [
            *data,
            "--methods=naive",
            "--trials=4",
            "--warmup=1",
            "--new-tokens=3",
            "--server-cache",
            cache,
        ]
        result = measured("time", tmp_path / "x.json", *options)
    assert (result["refused"] or "").startswith(expected or "")
    [there] = result["states"].values()
    assert bool(there["summary"]) == (expected is None)
    # a server's cache has a prompt's beginning, or none of it; of one as found nobody knows
    times = LatencyTimes.read(tmp_path / "x.json")
    shown = {"cold": ["nothing", "documents"], "warm": ["set"], "found": [*STATES]}[cache]
    assert [state for state in STATES if times.seconds("naive", state=state)] == shown
    assert len(result["rows"]) == 4
    prompts = [request["body"]["messages"][0]["content"] for request in server.requests]
    assert len(set(prompts)) == (len(prompts) if cache == "cold" else 3)
    assert all(request["body"]["ignore_eos"] for request in server.requests)


def test_a_server_with_a_certificate_of_its_own_is_trusted_by_name(
    data, tmp_path, monkeypatch, capfd
):
    """By both clients: that of answers, which is refused at once, and that of measurements."""
    trustme = pytest.importorskip("trustme", reason="needs trustme")
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "key"))
    asked = [
        "run",
        "--model=openai:m",
        *data,
        "--method=naive",
        "--limit=2",
        f"--out={tmp_path}/x.jsonl",
    ]
    timed = [*data, "--methods=naive", "--trials=2", "--new-tokens=3"]
    with serving([tokens(3)], tls=tls) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert main(asked) == 2
        failures = {
            row["failure"] for row in measured("time", tmp_path / "refused.json", *timed)["rows"]
        }
        assert not server.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert main(asked) == 0
        result = measured("time", tmp_path / "x.json", *timed)
    problem = f"endpoint {server.url}, model m: its certificate is not trusted: unable to get local issuer certificate"
    assert {failure.partition(";")[0] for failure in failures} == {problem}
    printed = "".join(capfd.readouterr())
    assert re.search(
        rf"error: {re.escape(problem)}; SSL_CERT_FILE names .*0 of 2 questions are answered",
        printed,
    )
    assert result["states"]["documents"]["summary"]["naive"]["total_s"]["n"] == 2
    assert {request["headers"]["Authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    (tmp_path / "key").unlink()
    assert all(KEY not in path.read_text() for path in tmp_path.iterdir())
    assert KEY not in printed


BUSY = Reply(b'{"error": {"message": "busy"}}', 429, {"Retry-After": "0.02"})
DOWN = Reply(b"", 503)
TORN = sse(chunk(content="x"), done=False)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (BUSY, "HTTP 429 Too Many Requests"),
        (DOWN, "HTTP 503 Service Unavailable"),
        (TORN, "the stream broke off before its end"),
        (Reply(b"", 0), "0 bytes read"),
        (Reply(b"not a stream"), "holds no completion"),
    ],
)
def test_what_was_measured_stays_and_losses_are_counted(
    trouble, reason, data, tmp_path, monkeypatch, capsys
):
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "key"))
    with serving([tokens(3), tokens(3), trouble, trouble, tokens(3)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = [*data, "--methods=naive", "--trials=5", "--warmup=1", "--new-tokens=3"]
        result = measured("time", tmp_path / "x.json", *options)
    failures = [row["failure"] for row in result["rows"] if row.get("failure")]
    assert (len(result["rows"]), len(failures)) == (5, 2)
    assert result["states"]["documents"]["summary"]["naive"]["total_s"]["n"] == 3
    assert all(reason in failure for failure in failures)
    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"
    assert "2 of 5 requests failed: endpoint" in capsys.readouterr().out


@pytest.mark.parametrize("level", ["--rates=200", "--clients=2"])
def test_a_load_goes_on_when_requests_fail(level, data, tmp_path, monkeypatch):
    left = [*[tokens(3)] * 4, BUSY, TORN, DOWN, Reply(b"", 0)]
    replies = lambda text: left.pop() if len(left) > 1 else left[0]  # noqa: E731
    with serving(replies) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = [*data, "--methods=naive,bm25", "--requests=10", "--warmup=1", "--new-tokens=3"]
        result = measured("load", tmp_path / "x.json", *options, level)
    first, second = result["levels"]
    assert [run["summary"]["requests"] for run in (first, second)] == [10, 10]
    assert second["summary"]["failed"] == 0
    failures = [row["failure"] for row in first["requests"] if row.get("failure")]
    assert len(failures) <= 4
    assert all(row["first_token_s"] is None for row in first["requests"] if row.get("failure"))


def test_nothing_waits_for_a_server_for_ever(data, tmp_path, monkeypatch):
    """One that takes the connection and is silent is given up after its time."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "run: x\nmodels: {m: {source: 'openai:m', served: {timeout_s: 0.1}}}\n"
        f"datasets: {{nq_open: {{data: {data[-1]}}}}}\nmethods: {{naive: {{}}}}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        options = [
            "--config",
            str(config),
            "--dataset=nq_open",
            "--methods=naive",
            "--new-tokens=3",
        ]
        began = time.monotonic()
        load = measured(
            "load", tmp_path / "x.json", *options, "--clients=2", "--requests=200", model="m"
        )
        timed = measured("time", tmp_path / "y.json", *options, "--trials=200", model="m")
    assert time.monotonic() - began < 20
    assert load["levels"][0]["summary"]["failed"] == 200
    reason = (
        r"not sent, after 0.1 s without an answer: endpoint .*: no complete response within 0.1 s"
    )
    assert [
        row["failure"] for row in timed["rows"] if not re.fullmatch(reason, row["failure"])
    ] == []


# --- servers with habits, by a clock that the test sets ---


def measured_by_clock(monkeypatch, tmp_path, data, verb, respond, *options):
    """Measure a server that takes the seconds that `respond` says, without waiting for them.

    `respond` has the prompt, and returns the moments of the pieces and facts of the completion.
    """

    def complete(self, server, path, body, name, sent):
        sent.append(time.perf_counter())
        moments, facts = respond(body["messages"][-1]["content"])
        pieces = [Piece("answer", " x", sent[-1] + at) for at in moments]
        return Completion(pieces, ended=pieces[-1].at, events=len(pieces), **facts)

    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setattr("ragauge.engines.served.streams.StreamClient.complete", complete)
    return measured(verb, tmp_path / f"{verb}.json", *data, *options)


def counted(tokens, finish="length"):
    return {"usage": {"prompt_tokens": 50, "completion_tokens": tokens}, "finish": finish}


EVERY_20_MS = [0.1 + 0.02 * i for i in range(20)]
HABITS = {
    # moments, facts -> tokens, seconds of a token, of all, remarks
    "each token": ((EVERY_20_MS, counted(20)), (20, 0.02, 0.48, [])),
    "bundles": (
        (EVERY_20_MS[::4], counted(20)),
        (20, 0.32 / 19, 0.42, ["several tokens in one event"]),
    ),
    "no counts": (
        (EVERY_20_MS[::4], {"finish": "length"}),
        (
            20,
            0.32 / 19,
            0.42,
            [
                "the server counts no tokens",
                "counted as the 20 at which it says that it ended",
                "several tokens in one event",
            ],
        ),
    ),
    "short": (
        (EVERY_20_MS[:3], counted(3, "stop")),
        (3, 0.02, None, ["3 of 20 tokens, so without total_s"]),
    ),
    "short, uncounted": (
        (EVERY_20_MS[:3], {"finish": "stop"}),
        (
            None,
            None,
            None,
            [
                "the server counts no tokens",
                "an unknown number of 20 tokens, so without total_s",
            ],
        ),
    ),
}


@pytest.mark.parametrize("habit", HABITS)
def test_what_a_server_does_not_do_as_requested_is_a_remark(
    habit, data, tmp_path, monkeypatch, capsys
):
    response, (tokens, per_token_s, total_s, remarks) = HABITS[habit]
    options = ["--methods=naive", "--trials=2", "--new-tokens=20"]
    result = measured_by_clock(
        monkeypatch, tmp_path, data, "time", lambda prompt: response, *options
    )
    for row in result["rows"]:
        assert row["new_tokens"] == tokens
        assert row.get("remarks", []) == remarks
        assert row["first_token_s"] == pytest.approx(0.1, abs=0.02)
        assert row["per_token_s"] == (per_token_s and pytest.approx(per_token_s))
        assert row["total_s"] == (total_s and pytest.approx(total_s, abs=0.02))
    printed = capsys.readouterr().out
    assert [f"naive: 2 of 2 responses: {remark}" in printed for remark in remarks] == [True] * len(
        remarks
    )


def test_a_response_of_another_length_is_no_good_answer(data, tmp_path, monkeypatch, capsys):
    """Of two variants whose responses differ in length, one total is compared, and one said to be
    shorter.
    """
    long = 300  # characters of a prompt with documents

    def respond(prompt):
        tokens = 3 if len(prompt) > long else 20
        return EVERY_20_MS[:tokens], counted(tokens, "stop" if tokens < 20 else "length")

    options = ["--methods=naive,closed_book", "--new-tokens=20"]
    timed = measured_by_clock(monkeypatch, tmp_path, data, "time", respond, *options, "--trials=2")
    assert timed["states"]["documents"]["summary"]["naive"]["total_s"]["n"] == 0
    assert timed["states"]["documents"]["summary"]["closed_book"]["total_s"]["n"] == 2
    loads = ["--clients=2", "--requests=6", "--warmup=1"]
    load = measured_by_clock(monkeypatch, tmp_path, data, "load", respond, *options, *loads)
    shares = {level["variant"]: level["summary"]["good_share"] for level in load["levels"]}
    assert shares == {"naive": 0, "closed_book": 1}
    assert "naive, 2 clients: 6 of 6 responses: 3 of 20 tokens" in capsys.readouterr().out
