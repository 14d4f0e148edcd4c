"""Rankings of other systems, in each format, and files that must not be read as one."""

import json
import random

import pytest

from ragauge.errors import UserError
from ragauge.study import ranked_passages
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion

PASSAGES = [Passage(f"d{i // 2}", f"text {i}") for i in range(8)]
IDS = list(map(ranked_passages.passage_id, PASSAGES))
ASKED = [
    StudyQuestion("Who?", ("a",), id="q1"),
    StudyQuestion("Where is it?", ("b",), id="q2"),
    StudyQuestion("When?", ("c",)),
]
NAMES = ["q1", "q2", ASKED[2].key]


def read(folder, content, name, count=2):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return ranked_passages.read(path, ASKED, PASSAGES, count)


def lines(rankings):
    rows = zip(NAMES, rankings, strict=True)
    return [{"question": name, "passages": [IDS[i] for i in order]} for name, order in rows]


def beir(rankings):
    return {
        row["question"]: {p: 9.5 - rank for rank, p in enumerate(row["passages"])}
        for row in lines(rankings)
    }


def trec(rankings):
    return [
        f"{question} Q0 {passage} {rank} {score:.6f} Anserini"
        for question, scores in beir(rankings).items()
        for rank, (passage, score) in enumerate(scores.items(), start=1)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_format_gives_the_same_rankings(tmp_path, seed):
    draw = random.Random(seed)
    rankings = [draw.sample(range(8), draw.randrange(2, 8)) for _ in ASKED]
    rows = [json.dumps(row) for row in lines(rankings)]
    draw.shuffle(rows)
    shuffled = {
        question: dict(draw.sample(list(scores.items()), len(scores)))
        for question, scores in beir(rankings).items()
    }
    run = trec(rankings)
    draw.shuffle(run)
    assert read(tmp_path, "\n".join(rows) + "\n", "run.jsonl") == rankings
    assert read(tmp_path, json.dumps(shuffled, indent=draw.choice([None, 1])), "r.json") == rankings
    assert read(tmp_path, "\n".join(run), "run.trec") == rankings
    assert read(tmp_path, "\t".join("\n".join(run).split(" ")), "run.txt") == rankings


def test_questions_are_named_by_id_key_or_text(tmp_path):
    names = [("q1", "Where is it?", ASKED[2].key), ("Who?", ASKED[1].key, "When?")]
    for chosen in names:
        rows = [{"question": name, "passages": IDS[:2]} for name in chosen]
        assert read(tmp_path, "\n".join(map(json.dumps, rows)), "r.jsonl") == [[0, 1]] * 3


def test_equal_scores_keep_the_order_of_the_file(tmp_path):
    scores = {name: dict.fromkeys([IDS[5], IDS[2], IDS[7]], 1) for name in NAMES}
    assert read(tmp_path, json.dumps(scores), "r.json") == [[5, 2, 7]] * 3


GOOD = [[0, 1, 2], [3, 4], [6, 5]]


def changed(kind, change):
    content = {"r.jsonl": lines, "r.json": beir, "r.trec": trec}[kind](GOOD)
    change(content)
    if kind == "r.json":
        return json.dumps(content)
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in content)


def edit(index, old, new):
    def change(rows):
        rows[index] = rows[index].replace(old, new)

    return change


BAD = [
    (
        "r.jsonl",
        lambda rows: rows[1]["passages"].append("nowhere"),
        r":2: .*'nowhere' is no passage",
    ),
    ("r.jsonl", lambda rows: rows[1]["passages"].append(IDS[4]), r":2: .*there twice"),
    ("r.jsonl", lambda rows: rows[2].update(question="q9"), r":3: no question .*'q9'"),
    ("r.jsonl", lambda rows: rows[2].update(passages=[7]), r":3: .*passages\[0\]"),
    ("r.jsonl", lambda rows: rows[2].update(passages=IDS[:1]), "1 passages, fewer than --top 2"),
    ("r.jsonl", lambda rows: rows.pop(), "0 passages, fewer than --top 2, for the question 'When"),
    ("r.json", lambda whole: whole["q1"].update({IDS[7]: "9"}), f"q1: field '{IDS[7]}' must be"),
    ("r.json", lambda whole: whole["q1"].update({IDS[7]: float("nan")}), "q1: field .*nan"),
    ("r.json", lambda whole: whole["q1"].update({"x": 1.0}), "r.json: q1: .*'x' is no passage"),
    ("r.json", lambda whole: whole.update(q2=[IDS[1], IDS[2]]), "field 'q2' must be"),
    ("r.trec", edit(0, " Q0", ""), ":1: not the six columns"),
    ("r.trec", edit(1, "8.5", "high"), ":2: not the six columns"),
    ("r.trec", edit(1, "8.500000", "nan"), ":2: the score of .* nan"),
]


@pytest.mark.parametrize(("kind", "change", "words"), BAD)
def test_what_cannot_be_a_ranking_of_the_study_is_refused_with_its_place(
    tmp_path, kind, change, words
):
    assert read(tmp_path, changed(kind, lambda content: None), kind) == GOOD
    with pytest.raises(UserError, match=words):
        read(tmp_path, changed(kind, change), kind)


def test_an_id_is_that_of_a_text_and_its_title():
    assert len({*IDS}) == len(IDS)
    assert ranked_passages.passage_id(Passage("d0", "text 0", near_duplicate=True)) == IDS[0]
    others = (Passage("d0", "text"), Passage("d", "0text 0"))
    assert all(ranked_passages.passage_id(other) not in IDS for other in others)
