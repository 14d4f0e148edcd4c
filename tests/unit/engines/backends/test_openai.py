"""A served model: what is sent, what is learnt of the reply, what becomes of a run whose server is
in trouble.
"""

import json
import time
from dataclasses import asdict

import pytest

from endpoints import Reply, streams
from endpoints import served as serving
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cli._main import main
from ragauge.config.model import ModelEntry, Served
from ragauge.cost.trace import Call
from ragauge.engines import backend
from ragauge.engines.backends.openai import ASSISTANT, USER, PieceTokenizer
from ragauge.engines.protocol import SERVED, EngineLostError, Limits
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.engines import Engines
from ragauge.methods.base import making
from ragauge.methods.prompts import PromptStyle, build_prompt
from ragauge.testing import write_checkpoint
from reuse_anchors import fresh

KEY = "sk-very-secret"
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 12},
}


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that were waited, by the clock alone, in place of waiting."""
    waited = []
    clock = time.perf_counter
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(waited))
    return waited


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def at(url, **served):
    """The engine for a server."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_BASE_URL", url)
        engine = backend.load("openai:m", "openai", served=served)
    assert engine.capabilities == backend.capabilities("openai")
    return engine


def prompt_ids(engine):
    """A prompt's ids."""
    style = PromptStyle("Say.", "chat")
    prompt = build_prompt("who", [("Ada", "She was.")], style, engine.tokenizer)
    return [*prompt.preamble, *prompt.documents[0], *prompt.query, *prompt.task]


def test_a_prompt_is_sent_as_one_turn_and_the_reply_is_timed_and_counted():
    with serving([streams("A", "da", **USAGE)]) as server:
        engine = at(server.url, body={"seed": 7, "stop": None})
        with engine.tracing() as trace:
            response = engine.respond(prompt_ids(engine), Limits(5))
    [request] = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    turn = "Say.\n\n[Document](Title: Ada) She was.\nQuestion: who?"
    assert request["body"] == {
        "model": "m",
        "messages": [{"role": "user", "content": turn}],
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
    }
    assert engine.tokenizer.decode(response.ids) == "Ada"
    assert [(call.stage, call.lengths, call.past, call.steps) for call in trace] == [
        ("prompt", (18,), (12,), 1),
        ("decode", (1,), (30,), 1),
    ]
    exchange = engine.exchange
    assert (exchange.prompt_tokens, exchange.cached_tokens, exchange.new_tokens) == (30, 12, 2)
    assert (exchange.attempts, exchange.finish) == (1, "stop")
    assert len(exchange.token_s) == 2
    assert 0 < exchange.token_s[0] <= exchange.token_s[1]


@pytest.mark.parametrize(
    "text", ["", " a  b\n\n c\t", "Nepōhualtzintzin 漢字🙂🙂, x²!?", f"{USER}a{ASSISTANT}b"]
)
def test_pieces_of_a_text_are_the_text(text, tmp_path):
    folder = write_checkpoint(tmp_path / "tiny")
    named = at("http://localhost:1", tokenizer=f"path:{folder}").tokenizer
    for tokenizer in (PieceTokenizer(), named):
        read = tokenizer(text, return_offsets_mapping=True)
        assert tokenizer.decode(read["input_ids"]) == text
        assert "".join(text[start:stop] for start, stop in read["offset_mapping"]) == text
    own = load_tokenizer(folder)(text, add_special_tokens=False)["input_ids"]
    assert USER in text or len(named(text)["input_ids"]) == len(own)


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(b"", 503),
        streams("A", done=False),
        Reply(b'data: {"choices": [\n\n'),
        Reply(b"data: [DONE]\n\n"),
    ],
    ids=["busy", "torn", "malformed", "empty"],
)
def test_trouble_that_passes_is_waited_out_and_not_timed(trouble, pauses):
    with serving([trouble, trouble, streams("Ada", **USAGE)]) as server:
        engine = at(server.url)
        began = time.perf_counter()
        with engine.tracing():
            response = engine.respond(prompt_ids(engine), Limits(5))
    assert engine.tokenizer.decode(response.ids) == "Ada"
    assert pauses == [1.0, 2.0]
    assert engine.exchange.attempts == 3
    asking = engine.first_token_at - began - engine.exchange.token_s[0]
    # of the three seconds of pauses, and of what two attempts took, there is nothing in it
    assert 0 <= asking < 2


def test_a_failure_of_one_prompt_is_told_from_a_lost_server(pauses):
    broken = Reply(b"", 500)
    refusal = Reply(b"too long", 400)
    with (
        serving([refusal]) as server,
        pytest.raises(UserError, match=r"HTTP 400 .*too long") as refused,
    ):
        at(server.url).respond("Who", Limits(5))
    with (
        serving([broken, broken, streams("Hi")]) as server,
        pytest.raises(UserError, match="HTTP 500") as failed,
    ):
        at(server.url, attempts=2).respond("Who", Limits(5))
    assert server.requests[-1]["body"]["prompt"] == "Hi"
    assert EngineLostError not in {type(refused.value), type(failed.value)}


def test_an_address_that_holds_a_password_is_refused_and_not_shown():
    with pytest.raises(UserError, match="its URL holds a user, password or token") as caught:
        at("http://me:hunter2@localhost/v1")
    assert "hunter2" not in str(caught.value)


# --- runs ---


def command(method, *more):
    return [
        "run",
        f"--method={method}",
        "--dataset=wiki_single",
        "--model=openai:m",
        "--limit=4",
        *more,
    ]


@pytest.fixture
def server(monkeypatch, pauses):
    """A server that answers well `good` times and then with `reply`."""
    state = {"good": 1 << 30, "reply": Reply(b"", 503)}

    def reply(_):
        state["good"] -= 1
        return streams("Ada", "\nx", **USAGE) if state["good"] >= 0 else state["reply"]

    with serving(reply) as found:
        monkeypatch.setenv("OPENAI_BASE_URL", found.url)
        yield state


@pytest.mark.parametrize(
    "trouble", [Reply(b"", 503), Reply(b"", 0), streams("A", done=False), Reply(b"?", 401)]
)
def test_answers_until_a_server_is_lost_are_kept_and_a_rerun_asks_the_others(
    trouble, server, tmp_path, capsys
):
    out = tmp_path / "x.jsonl"
    server |= {"good": 2, "reply": trouble}
    assert main([*command("naive"), "--out", str(out)]) == 2
    assert not out.exists()
    printed = capsys.readouterr().err.splitlines()[-1]
    assert "2 of 4 questions are answered; run it again for the others" in printed
    server["good"] = 2  # enough for those that are left
    assert main([*command("naive"), "--out", str(out)]) == 0
    assert [record.status for record in records.read(out)] == ["ok"] * 4


def test_a_record_says_whose_times_it_has_and_nothing_on_disk_has_the_key(server, tmp_path):
    out = tmp_path / "x.jsonl"
    assert main([*command("bm25"), "--out", str(out)]) == 0
    record = records.read(out)[0]
    assert record.prediction == "Ada"
    assert record.served.stack.startswith("BaseHTTP")
    assert record.served.cached_tokens == 12
    assert record.first_token_s >= record.served.token_s[0]
    meta = json.loads(records.meta_path(out).read_text())
    assert meta["specification"]["options"]["path_caching"] is False  # the server has the cache
    assert meta["specification"]["engine"]["served"] == {
        "tokenizer": None,
        "body": {},
        "own_cache": False,
    }
    assert all(KEY not in path.read_text() for path in tmp_path.iterdir())


def test_no_variant_finds_what_another_one_sent_where_each_has_a_line_of_its_own(
    monkeypatch,
):
    turns = []
    for own in (True, False):
        entry = ModelEntry(source="openai:m", engine="openai", served=Served(own_cache=own))
        with serving([streams("x")] * 3) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            loaded = Engines(served=entry.served)
            for method in (making.make("naive"), making.make("top", top_k=5), making.make("naive")):
                about = {"method": "m", "dataset": "d", "model": "openai:m", "template": "chat"}
                stated = AnswerSpecification(
                    **about, options=asdict(method), engine=entry.engine_facts
                )
                loaded.ready(stated, method).respond(prompt_ids(loaded.of(stated)), Limits(5))
        turns.append(server.turns)
    (first, second, again), (plain, *_) = turns
    assert len(set(turns[1])) == 1
    assert first == again != second
    assert all(turn.partition("]\n")[2] == plain for turn in turns[0])


def test_a_server_reads_documents_as_they_were_ordered_and_pruned():
    sources = [("A", "Ants run."), ("B", "Bees fly. Cats sit."), ("C", "Cats sleep.")]
    pruning = making.make("sentence_pruning", ranker="bm25", threshold=0.2, top_k=1)
    tree = making.make("prefix_tree", reorder=True).adapted_to(SERVED).for_run()
    with serving([streams("x")] * 5) as server:
        engine = at(server.url)
        pilot = making.make("context_pilot", annotate=True).adapted_to(SERVED).for_run()
        orders = (
            (pilot, sources),
            (pilot, sources[::-1]),
            (pruning, sources),
            (tree, sources),
            (tree, sources[::-1]),
        )
        for method, given in orders:
            style = PromptStyle("Say.", "chat")
            prompt = build_prompt("Do bees fly", given, style, engine.tokenizer)
            assert method.refusal(engine) is None
            fresh(engine, method, prompt, Limits(5))
    first, second, pruned, *by_tree = server.turns
    shown = "".join(f"[Document](Title: {title}) {text}\n" for title, text in sources)
    last = "Prioritize information from higher-ranked documents.\nQuestion: Do bees fly?"
    ranking = "Read the documents in this importance ranking:"
    assert first == f"Say.\n\n{shown}{ranking} 1 > 2 > 3\n{last}"
    assert second == f"Say.\n\n{shown}{ranking} 3 > 2 > 1\n{last}"
    assert pruned == "Say.\n\n[Document](Title: B) Bees fly.\nQuestion: Do bees fly?"
    assert by_tree == [f"Say.\n\n{shown}Question: Do bees fly?"] * 2


def test_a_local_model_compresses_what_a_server_reads(monkeypatch, pauses, tmp_path):
    small = write_checkpoint(tmp_path / "small", max_position_embeddings=1 << 15)
    sent = {}
    for rate in ("1.0", "0.5"):
        with serving([streams("Ada", **USAGE)]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            options = [
                f"--set=auxiliary=path:{small}",
                f"--set=rate={rate}",
                "--limit=2",
                "--batch=2",
            ]
            options.append("--set=dataset.documents=6")
            assert (
                main(
                    [*command("long_llmlingua"), *options, "--out", str(tmp_path / f"{rate}.jsonl")]
                )
                == 0
            )
        sent[rate] = sorted(server.turns)
    for record in records.read(tmp_path / "0.5.jsonl"):
        *before, prompt, decode = map(Call.from_json, record.trace)
        assert (prompt.stage, decode.stage) == ("prompt", "decode")
        assert all(call.stage == "auxiliary" and call.macs and not call.offline for call in before)
        assert len(before) > 6  # documents
    assert all(
        0.4 < len(short) / len(long) < 0.65
        for short, long in zip(sent["0.5"], sent["1.0"], strict=True)
    )


def test_several_requests_at_a_time_keep_what_was_answered_when_the_server_goes(server, tmp_path):
    out = tmp_path / "x.jsonl"
    twelve = [*command("naive"), "--limit=12", "--batch=2", "--out", str(out)]
    server |= {"good": 1, "reply": Reply(b"", 401)}
    assert main(twelve) == 2
    lines = out.with_name("x.jsonl.partial").read_text().splitlines()
    assert [line.startswith('{"key"') for line in lines].count(True) == 1
    assert server["good"] >= -2  # what was under way, and nothing of the nine that waited
    server["good"] = 1 << 30
    assert main(twelve) == 0
    assert len(records.read(out)) == 12


def test_free_extraction_asks_for_evidence_then_answers_from_it(monkeypatch, tmp_path):
    out = tmp_path / "x.jsonl"
    written = "It was built in 1821. Ida kept it."
    article = "The tower is old. It was built in 1821. Nobody knows why it leans. " * 40
    line = {
        "id": "q",
        "question": "When?",
        "title": "Tower",
        "context": article,
        "answers": ["1821"],
    }
    (tmp_path / "d.jsonl").write_text(json.dumps(line) + "\n")
    with serving([streams(written, **USAGE), streams("18", "21", **USAGE)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = [
            "--dataset=wiki_long",
            f"--data={tmp_path}/d.jsonl",
            "--set=request=copy",
            "--set=volume=99",
        ]
        assert (
            main(
                ["run", "--method=free_extraction", "--model=openai:m", *options, "--out", str(out)]
            )
            == 0
        )
    first = server.requests[0]["body"]
    turn, second = server.turns
    assert turn.startswith("Read the document below. It holds the answer to a question.\n\n")
    # no cue
    assert turn.endswith(
        "Question: When?\nCopy the sentences of the document that answer the question."
    )
    assert article.strip() in turn
    assert (first["max_tokens"], "stop" in first) == (99, False)
    assert second.count("1821") == 1
    [record] = records.read(out)
    assert [(piece.text, piece.verbatim) for piece in record.evidence] == [
        ("It was built in 1821.", True),
        ("Ida kept it.", False),
    ]
    assert record.prediction == "1821"
    assert (record.served.prompt_tokens, record.served.cached_tokens, record.served.new_tokens) == (
        60,
        24,
        4,
    )
    assert (record.served.attempts, len(record.served.token_s)) == (2, 2)


def stated(**facts):
    """What a server says of its model "m", with times that differ at every request."""
    return {"data": [{"id": "m", "created": time.time(), "owned_by": "us", **facts}]}


@pytest.mark.parametrize(
    ("first", "then", "same"),
    [
        (stated(root="/a"), stated(root="/a"), True),
        (stated(root="/a"), stated(root="/b"), False),
        (stated(meta={"n_params": 1}), stated(meta={"n_params": 2}), False),
        (stated(), {}, False),
        ({}, {}, True),
        ("no object", "no object", True),
    ],
)
def test_another_model_behind_the_same_name_and_address_is_another_run(
    first, then, same, monkeypatch, tmp_path, capsys, pauses
):
    facts = {"/v1/models": first}
    options = command("naive", f"--out={tmp_path}/x.jsonl")
    with serving([streams("Greta")], facts=facts) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert main([*options, "--limit=1"]) == 0
        facts["/v1/models"] = then
        assert main([*options, "--limit=2"]) == (0 if same else 2)
    assert len(server.requests) == (2 if same else 1)
    meta = json.loads((tmp_path / "x.meta.json").read_text())
    assert meta["fingerprint"]["server"]["address"] == server.url
    assert ("stack" in meta["fingerprint"]["server"]) == (first != "no object")
    assert "created" not in json.dumps(meta["fingerprint"])
    assert ("holds records of another run: server is" in capsys.readouterr().err) != same


@pytest.mark.parametrize("storage", [{"weights": "int8"}, {"kv": "int8_stored"}])
def test_fewer_bits_are_refused_of_a_server(storage):
    [(key, value)] = storage.items()
    with pytest.raises(UserError, match=f"^{key}: '{value}' needs engine 'torch', not 'openai'"):
        backend.load("openai:m", "openai", **storage)
