"""Judging evidence: what replies mean, and endpoints that are down, busy or talk rubbish."""

import time

import pytest

from endpoints import Reply, says, served
from json_lines import read_lines, write_lines
from ragauge.cli._main import main
from ragauge.errors import UserError
from ragauge.io.records import Record
from ragauge.methods.evidence.chat import Endpoint, EndpointChat
from ragauge.methods.evidence.judge import (
    about_answer,
    about_evidence,
    correctness,
    faithfulness,
    judge,
    verdict,
)
from ragauge.testing import write_checkpoint
from scripted_chat import ScriptedChat
from tables import rows


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.mark.parametrize(
    ("reply", "label"),
    rows(r"""
fully supported, supported
Supported., supported
"**Fully-Supported**", supported
"It is partially supported, since", partially_supported
"partly\nsupported", partially_supported
"It isn\u2019t fully supported", partially_supported
Not supported, not_supported
unsupported, not_supported
It isn't supported, not_supported
fully supported or not supported, null
supporting, null
"yes", null
"", null
"correct, incorrect", null
faithful or unfaithful, null
It is not directly supported, null
It cannot be supported, null
Correct., correct
INCORRECT, incorrect
"It is not\ncorrect", incorrect
wrong, incorrect
It isn't entirely correct, incorrect
Faithful., faithful
"**Unfaithful**", unfaithful
"It is not\nfaithful", unfaithful
not entirely faithful, unfaithful
"""),
)
def test_a_reply_says_one_label_or_none(reply, label):
    """Of evidence, its faithfulness or an answer: none reads the others' labels."""
    assert (verdict(reply), correctness(reply), faithfulness(reply)).count(label) == (
        1 if label else 3
    )


def replying(reply):
    def say(request):
        if isinstance(reply, UserError):
            raise reply
        return reply

    return ScriptedChat(say, "fixed")


def test_a_judge_of_answers_sees_the_passages_and_no_label():
    chat = replying("correct")
    assert (
        judge(chat, about_answer("k", "Who?", ["Ada was.", "Bob was."], "Ada")).label == "correct"
    )
    assert "Question: Who?\n\nPassages:\nAda was.\nBob was.\n\nAnswer: Ada\n" in chat.requests[0]
    assert judge(chat, about_answer("k", "Who?", ["x"], " ")).label == "incorrect"
    assert len(chat.requests) == 1


def test_no_request_is_made_without_evidence_or_for_a_failed_question():
    chat = replying("fully supported")
    without = judge(chat, about_evidence("k", "Who?", ["Ada"], []))
    assert without.label == "not_supported"
    failed = judge(chat, about_evidence("k", "Who?", ["Ada"], ["x"]), failed=True)
    assert failed.label is None
    assert chat.requests == []


def test_an_endpoint_that_is_down_is_not_asked_for_ever():
    with served([Reply(b"", 503)]) as server:
        chat = EndpointChat(Endpoint(server.url, model="m", attempts=2))
        reasons = [
            judge(chat, about_evidence(str(i), "Who?", ["Ada"], ["x"])).reason or ""
            for i in range(6)
        ]
        assert len(server.requests) == 3 * 2
    assert all("HTTP 503" in reason for reason in reasons[:3])
    assert all("had failed 3 times in a row" in reason for reason in reasons[3:])


# ---- the command


def write_records(path, count=3, **changes):
    pieces = [{"document": 0, "start": 0, "stop": 3, "text": "Ada", "verbatim": True}]
    base = {"status": "ok", "answers": ["Ada"], "gold": [0], "documents": 1, "prompt_sha256": ""}
    lines = [
        Record(key=f"q{i}", question=f"Who is {i}?", **{**base, "evidence": pieces, **changes})
        for i in range(count)
    ]
    path.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    return path


@pytest.fixture
def environment(monkeypatch):
    for name in ("URL", "MODEL", "KEY"):
        monkeypatch.delenv(f"RAGAUGE_JUDGE_{name}", raising=False)
    monkeypatch.setenv("RAGAUGE_JUDGE_MODEL", "m")
    return monkeypatch


def judged(records, out, *options):
    return main(["judge", str(records), "--out", str(out), *options])


def test_records_are_judged_and_a_second_run_asks_only_what_failed(tmp_path, environment):
    records = write_records(tmp_path / "r.jsonl")
    out = tmp_path / "judgements" / "r.jsonl"
    with served([says("supported"), says("what?"), says("not supported")]) as server:
        environment.setenv("RAGAUGE_JUDGE_URL", server.url)
        assert judged(records, out) == 0
    first = read_lines(out)
    assert [line.get("label") for line in first] == ["supported", None, "not_supported"]
    assert [line["key"] for line in first] == ["q0", "q1", "q2"]
    assert first[1]["reason"] == "no judgement in the reply 'what?'"
    assert {line["judge"] for line in first} == {"m"}
    with served([says("partially supported")]) as server:
        environment.setenv("RAGAUGE_JUDGE_URL", server.url)
        assert judged(records, out) == 0
        assert len(server.requests) == 1
    assert [line["label"] for line in read_lines(out)] == [
        "supported",
        "partially_supported",
        "not_supported",
    ]


def test_a_sample_of_the_records_is_judged(tmp_path, environment):
    """Drawn by the questions' keys alone, in the records' order; more of them are judged later,
    none twice.
    """
    records = write_records(tmp_path / "r.jsonl")
    out = tmp_path / "out.jsonl"
    with served([says("supported")]) as server:
        environment.setenv("RAGAUGE_JUDGE_URL", server.url)
        assert judged(records, out, "--limit", "2") == 0
        two = [line["key"] for line in read_lines(out)]
        assert (len(two), two) == (2, sorted(two))
        assert judged(records, out) == 0
        assert len(server.requests) == 3
    assert [line["key"] for line in read_lines(out)] == ["q0", "q1", "q2"]


def test_a_file_of_something_else_is_left_as_it_is(tmp_path, environment, capsys):
    records = write_records(tmp_path / "r.jsonl")
    environment.setenv("RAGAUGE_JUDGE_URL", "http://127.0.0.1:9")
    for theirs in (records.read_bytes(), b"notes\n", b"[1]\n"):
        (tmp_path / "out.jsonl").write_bytes(theirs)
        assert judged(records, tmp_path / "out.jsonl") == 2
        assert "out.jsonl:1: " in capsys.readouterr().err
        assert (tmp_path / "out.jsonl").read_bytes() == theirs


def test_another_judge_or_other_evidence_is_asked_again(tmp_path, environment):
    records = write_records(tmp_path / "r.jsonl")
    out = tmp_path / "out.jsonl"
    with served([says("supported")]) as server:
        environment.setenv("RAGAUGE_JUDGE_URL", server.url)
        judged(records, out)
        environment.setenv("RAGAUGE_JUDGE_MODEL", "n")
        judged(records, out)
        assert {line["judge"] for line in read_lines(out)} == {"n"}
        write_records(records, answers=["Eve"])
        judged(records, out)
        assert len(server.requests) == 9


def test_faithfulness_is_judged_by_the_documents_and_of_evidence_alone(
    tmp_path, environment, capsys
):
    records = write_records(tmp_path / "r.jsonl", 1)
    out = tmp_path / "out.jsonl"
    example = {
        "key": "q0",
        "question": "Who?",
        "documents": [{"title": "", "text": "Ada was. Bob is."}],
    }
    write_lines(tmp_path / "d.jsonl", [{**example, "answers": ["Ada"], "gold": [0]}])
    arguments = ["judge", str(records), "--of", "faithfulness", "--out", str(out)]
    assert main(arguments) == 2
    assert "--examples: " in capsys.readouterr().err
    arguments += ["--examples", str(tmp_path / "d.jsonl")]
    with served([says("supported"), says("unfaithful")]) as server:
        environment.setenv("RAGAUGE_JUDGE_URL", server.url)
        assert [main(arguments), main(arguments)] == [0, 0]  # nothing is asked again
        assert len(server.requests) == 2
        assert "Document:\nAda was. Bob is.\n\nEvidence:\nAda\n" in server.turns[1]
        assert [(line.get("aspect"), line["label"]) for line in read_lines(out)] == [
            (None, "supported"),
            ("faithfulness", "unfaithful"),
        ]
        write_records(records, 1, evidence=[])
        assert main(arguments) == 0
        assert [line["label"] for line in read_lines(out)] == ["not_supported"]
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("context", "reason"), [(512, "no judgement in the reply"), (128, "context is 128 tokens")]
)
def test_a_judge_on_this_machine(context, reason, tmp_path):
    """A random model says nothing of the kind, and one of a short context cannot be asked."""
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=context)
    records = write_records(tmp_path / "r.jsonl", 1)
    out = tmp_path / "out.jsonl"
    assert judged(records, out, "--model", str(model), "--threads", "1") == 0
    [line] = read_lines(out)
    assert line["judge"] == str(model)
    assert reason in line["reason"]


def test_mistakes_are_one_line(tmp_path, environment, capsys):
    records = write_records(tmp_path / "r.jsonl")
    out = tmp_path / "out.jsonl"
    assert judged(records, out) == 2
    assert "RAGAUGE_JUDGE_URL: " in capsys.readouterr().err
    environment.setenv("RAGAUGE_JUDGE_URL", "nowhere")
    assert judged(records, out) == 2
    assert "endpoint 'nowhere'" in capsys.readouterr().err
    naive = write_records(tmp_path / "naive.jsonl", evidence=None)
    assert judged(naive, out) == 2
    assert "has no evidence to judge" in capsys.readouterr().err
