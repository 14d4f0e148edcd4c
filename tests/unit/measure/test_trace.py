"""Traces of requests: read in two formats, and replayed on a model here and on a stand-in server."""

import json

import pytest

from endpoints import chunk, served, sse
from ragauge.cli._main import main
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import TraceEntry
from ragauge.datasets.base.examples import read_examples, write_examples
from ragauge.engines.backends.openai import ROUGH_PIECES
from ragauge.methods.prompts.templates import document_text
from ragauge.testing import write_checkpoint

MOONCAKE = {"timestamp": 0, "input_length": 1100, "output_length": 3, "hash_ids": [0, 1, 2]}
TURN = {
    "question": "Who?",
    "documents": [{"title": "T", "text": "A bridge of stone."}],
    "time": 0.5,
}


def written(path, *records):
    """The options of a data set with these records."""
    path.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records)
    )
    return ["--dataset", "trace", "--data", str(path)]


def examples(path, *records, **options):
    written(path, *records)
    return loader.load("trace", data=path, **options)


def test_a_block_is_a_document_of_its_length_and_the_same_for_the_same_hash(tmp_path):
    other = {"timestamp": 250, "input_length": 1024, "output_length": 7, "hash_ids": [0, 3]}
    first, second = examples(tmp_path / "x.jsonl", MOONCAKE, other)
    shown = [
        [f"{document_text(d.title, d.text)}\n" for d in one.documents] for one in (first, second)
    ]
    assert [[len(ROUGH_PIECES.findall(text)) for text in texts] for texts in shown] == [
        [512, 512, 76],
        [512, 512],
    ]
    assert first.documents[0] == second.documents[0]
    assert len({*first.documents, *second.documents}) == 4
    assert second.trace == TraceEntry(0.25, 7, None, is_simulated=True)
    [small] = examples(
        tmp_path / "x.jsonl", MOONCAKE | {"hash_ids": list(range(22))}, block_tokens=50
    )
    assert len(small.documents) == 22


def test_a_later_turn_has_the_earlier_ones_before_its_question(tmp_path):
    turns = [
        TURN | {"conversation": "a", "answer": "Ann."},
        TURN,
        TURN | {"conversation": "a", "new_tokens": 4},
    ]
    read = examples(tmp_path / "x.jsonl", *turns, TURN | {"conversation": "a", "question": "When?"})
    assert [one.question for one in read[:2]] == ["Who?", "Who?"]
    assert read[2].question == "Who?\nAnswer: Ann.\nQuestion: Who?"
    assert read[3].question == "Who?\nAnswer: Ann.\nQuestion: Who?\nQuestion: When?"
    assert (read[0].answers, read[1].answers) == (("Ann.",), ())
    assert read[2].trace == TraceEntry(0.5, 4, "a")
    write_examples(tmp_path / "written.jsonl", read)
    assert read_examples(tmp_path / "written.jsonl") == read


NQ = {"question": "Q?", "answers": ["A"], "ctxs": [{"title": "T", "text": "A.", "isgold": True}]}
MISTAKES = {
    "no JSON": (["{"], "x.jsonl:1: not valid JSON", []),
    "negative": (
        [TURN | {"time": -1}],
        "x.jsonl:1: field 'time' must be a number from 0, not -1",
        [],
    ),
    "decreasing": (
        [MOONCAKE | {"timestamp": 9}, MOONCAKE],
        "x.jsonl:2: arrives at 0 s, before the line above",
        [],
    ),
    "no documents": ([TURN | {"documents": []}], "x.jsonl:1: question without documents", []),
    "blocks": (
        [MOONCAKE | {"hash_ids": [1, 2]}],
        "must be 3 integers, as 'input_length' is 1100 and a block 512",
        [],
    ),
    "no response": (
        [MOONCAKE | {"output_length": 0}],
        "'output_length' must be a number from 1, not 0",
        [],
    ),
    "long": (
        [TURN, MOONCAKE | {"timestamp": 600}],
        "3 of response exceed the context of 4096 tokens",
        [],
    ),
    "few": ([TURN], "warmup: 1, but ", []),
    "still": ([TURN], "--speeds: must be greater than 0, not '0'", ["--speeds=0"]),
    "no trace": (
        [NQ],
        "speeds: data set 'nq_open' has no arrival times; choose rates",
        ["--dataset=nq_open"],
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ["--model", str(write_checkpoint(tmp_path_factory.mktemp("model"))), "--threads", "1"]


@pytest.mark.parametrize(("records", "message", "more"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(records, message, more, model, tmp_path, capsys):
    options = [
        *written(tmp_path / "x.jsonl", *records),
        "--methods=naive",
        "--speeds=1",
        "--warmup=1",
        *more,
    ]
    assert main(["load", *model, *options, "--out", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_replay_finds_what_its_own_requests_read(model, tmp_path, capsys):
    texts = [
        [{"text": f"{name} {'word ' * 9}"} for name in names] for names in ("ab", "ab", "ac", "ba")
    ]
    records = [
        TURN | {"documents": d, "time": i / 50, "new_tokens": 2 + i} for i, d in enumerate(texts)
    ]
    options = [
        "--methods",
        "naive,prefix_tree,naive_reuse",
        "--speeds",
        "1,2",
        "--warmup",
        "1",
        "--allow-load",
    ]
    assert (
        main(
            [
                "load",
                *model,
                *written(tmp_path / "x.jsonl", *records),
                *options,
                "--out",
                f"{tmp_path}/x",
            ]
        )
        == 0
    )
    levels = json.loads((tmp_path / "x").read_text())["levels"]
    expected = {"naive": [None] * 4, "prefix_tree": [0, 1, 0.5, 0], "naive_reuse": [0, 1, 0.5, 1]}
    for level in levels:
        rows = level["requests"]
        assert [row["found"] for row in rows] == pytest.approx(
            expected[level["variant"]], abs=0.02
        ), level["speed"]
        assert [row["new_tokens"] for row in rows] == [2, 3, 4, 5]
        assert [row["arrival_at_s"] for row in rows] == pytest.approx(
            [i / 50 / level["speed"] for i in range(4)]
        )
    assert [(level["variant"], level["speed"]) for level in levels[:2]] == [
        ("naive", 1),
        ("naive", 2),
    ]
    assert "text of the prompts: the trace's own" in capsys.readouterr().out


def reply(body, seen):
    """An answer with the cached tokens of a server that keeps every prompt; a character is a token."""
    prompt = body["messages"][0]["content"]
    shared = [
        next(
            (i for i, pair in enumerate(zip(prompt, s, strict=False)) if pair[0] != pair[1]), len(s)
        )
        for s in seen
    ]
    seen.append(prompt)
    usage = {"prompt_tokens": len(prompt), "completion_tokens": body["max_tokens"]}
    usage |= {"prompt_tokens_details": {"cached_tokens": max(shared, default=0)}}  # type: ignore[dict-item]
    return sse(
        *[chunk(content="x")] * body["max_tokens"], chunk("length"), {"choices": [], "usage": usage}
    )


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_requests_of_a_trace_share_blocks_on_a_server(cache, tmp_path, monkeypatch, capsys):
    hashes = [[0, 1, 2], [0, 1, 3], [4, 5, 6]]
    records = [
        MOONCAKE | {"timestamp": 150 * i, "output_length": 2 + i, "hash_ids": h}
        for i, h in enumerate(hashes)
    ]
    seen = []
    with served(whole=lambda body: reply(body, seen)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = [
            "--model=openai:m",
            "--methods=naive",
            "--speeds=1,2",
            "--warmup=0",
            f"--server-cache={cache}",
        ]
        options += [*written(tmp_path / "x.jsonl", *records), "--out", str(tmp_path / "x.json")]
        assert main(["load", *options]) == 0
    result = json.loads((tmp_path / "x.json").read_text())
    for level in result["levels"]:
        rows = level["requests"]
        assert not level["refused"]
        assert [row["new_tokens"] for row in rows] == [2, 3, 4]
        moments = [row["arrival_at_s"] for row in rows]
        assert moments == pytest.approx([0.15 * i / level["speed"] for i in range(3)])
        shares = [row["cached_tokens"] / row["prompt_tokens"] for row in rows]
        assert shares[0] > 0.9 if cache == "warm" else shares[0] < 0.1
        assert shares[1] > 0.9
        assert shares[2] > 0.9 if cache == "warm" else shares[2] < 0.1
    assert result["protocol"]["trace"]["text"].startswith("simulated")
    assert "text of the prompts: simulated" in capsys.readouterr().out
