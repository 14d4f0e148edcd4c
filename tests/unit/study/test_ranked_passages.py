"""Rankings of other systems, in each format, and files that must not be read as one."""

import json
import random
import re

import pytest

from ragauge.errors import UserError
from ragauge.study import ranked_passages
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion
from tables import cases

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


def refused(folder, kind, change, words):
    assert read(folder, changed(kind, lambda content: None), kind) == GOOD
    with pytest.raises(UserError, match=words):
        read(folder, changed(kind, change), kind)


# format, row, what is changed in it; P0 to P7 stand for the passages' ids
BAD_ROWS = r"""
r.jsonl, 1, {passages: [P3, P4, nowhere]} -> :2: .*'nowhere' is no passage
r.jsonl, 1, {passages: [P3, P4, P4]} -> :2: .*there twice
r.jsonl, 2, {question: q9} -> :3: no question .*'q9'
r.jsonl, 2, {passages: [7]} -> :3: .*passages\[0\]
r.jsonl, 2, {passages: {}} -> :3: field 'passages'
r.jsonl, 2, {passages: [P0]} -> 1 passages, fewer than --top 2
r.json, q1, {P7: "9"} -> q1: field '\w{12}' must be
r.json, q1, {P7: null} -> q1: field '\w{12}' must be
r.json, q1, {P7: .nan} -> q1: field .*nan
r.json, q1, {x: 1.0} -> r.json: q1: .*'x' is no passage
"""


@pytest.mark.parametrize(
    ("kind", "row", "change", "words"),
    cases(re.sub(r"P(\d)", lambda match: f'"{IDS[int(match[1])]}"', BAD_ROWS)),
)
def test_what_is_wrong_in_a_row_is_refused_with_its_place(tmp_path, kind, row, change, words):
    refused(tmp_path, kind, lambda content: content[row].update(change), words)


@pytest.mark.parametrize(
    ("row", "old", "new", "words"),
    [
        (0, " Q0", "", ":1: not the six columns"),
        (1, "8.5", "high", ":2: not the six columns"),
        (1, "8.500000", "nan", ":2: the score of .* nan"),
        (3, "q2", "q7", ":4: no question .*'q7'"),
        (3, IDS[3], IDS[4], ":5: .*there twice"),
    ],
)
def test_a_bad_line_of_columns_is_refused_with_its_place(tmp_path, row, old, new, words):
    def change(lines):
        lines[row] = lines[row].replace(old, new)

    refused(tmp_path, "r.trec", change, words)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("r.jsonl", lambda rows: rows.append(dict(rows[1])), r":4: .*there twice"),
        ("r.jsonl", list.pop, "0 passages, fewer than --top 2, for the question 'When"),
        ("r.json", lambda whole: whole.update(q2=IDS[1:3]), "field 'q2' must be"),
        ("r.json", lambda whole: whole.update(q3=dict(whole["q2"])), "no question .*'q3'"),
    ],
)
def test_what_cannot_be_a_ranking_of_the_study_is_refused(tmp_path, kind, change, words):
    refused(tmp_path, kind, change, words)


def test_an_id_is_that_of_a_text_and_its_title():
    assert len({*IDS}) == len(IDS)
    assert ranked_passages.passage_id(Passage("d0", "text 0", near_duplicate=True)) == IDS[0]
    others = (Passage("d0", "text"), Passage("d", "0text 0"))
    assert all(ranked_passages.passage_id(other) not in IDS for other in others)
