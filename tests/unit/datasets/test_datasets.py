"""Reading the official formats: what the examples hold, and what is said of bad files."""

import json
from functools import partial

import pytest

from ragauge.config.experiment import specify
from ragauge.config.model import ModelEntry
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Document, shuffled_order
from ragauge.datasets.musique import Musique
from ragauge.errors import UserError
from ragauge.io.jsonl import read_jsonl
from ragauge.methods.base import making
from tables import cases

NQ = "nq_open/nq-open-20_total_documents_gold_at_0.jsonl.gz"
MUSIQUE = "musique/musique_ans_v1.0_dev.jsonl.gz"


def nq_record(**changes):
    contexts = [
        {"title": f"T{i}", "text": f"text {i}", "isgold": i == 0, "hasanswer": i == 0}
        for i in range(5)
    ]
    return {"question": "who", "answers": ["me"], "ctxs": contexts, **changes}


def musique_record(**changes):
    paragraphs = [
        {"idx": i, "title": f"T{i}", "paragraph_text": f"p {i}", "is_supporting": i > 2}
        for i in range(5)
    ]
    record = {
        "id": "2hop__1_2",
        "question": "who",
        "answer": "me",
        "answer_aliases": ["I", "me"],
        "answerable": True,
    }
    return {**record, "paragraphs": paragraphs, **changes}


def write(folder, *records):
    path = folder / "data.jsonl"
    path.write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in records))
    return path


def test_nq_open_sample(shared_data):
    examples = loader.load("nq_open", data=shared_data / NQ)
    assert len(examples) == 300
    assert {len(e.documents) for e in examples} == {20}
    assert {len(e.gold) for e in examples} == {1}
    places = [e.gold[0] for e in examples]
    assert len(set(places)) == 20
    assert 7 < sum(places) / 300 < 12


def test_musique_sample(shared_data):
    examples = loader.load("musique", data=shared_data / MUSIQUE)
    assert len(examples) == 120
    assert {len(e.documents) for e in examples} == {20}
    assert all(2 <= len(e.gold) <= 4 for e in examples)


def test_documents_stand_as_another_system_ranked_them(tmp_path):
    data = write(tmp_path, *(nq_record(question=name) for name in ("who", "where", "when")))
    plain = loader.load("nq_open", data=data)
    ranked = tmp_path / "run.trec"
    rows = [
        f"{e.key} Q0 {number} 0 {score} bm25" for e in plain for number, score in ((4, 1.5), (2, 3))
    ]
    ranked.write_text("\n".join(rows))
    found = loader.load("nq_open", data=data, limit=2, retrieved=str(ranked))
    for before, after in zip(plain[:2], found, strict=True):
        order = [2, 4, 0, 1, 3]
        assert after.documents == tuple(before.documents[i] for i in order)
        assert after.gold == (order.index(before.gold[0]),)
    ranked.write_text("\n".join(rows[:2]))
    with pytest.raises(UserError, match=f"ranks no document of the question '{plain[1].key}'"):
        loader.load("nq_open", data=data, retrieved=str(ranked))
    ranked.write_text(rows[0].replace(" 4 ", " 5 "))
    with pytest.raises(UserError, match=r"run.trec:1: '5' is no passage of its question"):
        loader.load("nq_open", data=data, limit=1, retrieved=str(ranked))


def test_shuffle_keeps_documents_and_gold(shared_data):
    plain = loader.load("nq_open", data=shared_data / NQ, limit=20, shuffle=False)
    mixed = loader.load("nq_open", data=shared_data / NQ, limit=20)
    for a, b in zip(plain, mixed, strict=True):
        assert a.gold == (0,)
        assert sorted(d.text for d in a.documents) == sorted(d.text for d in b.documents)
        assert a.documents[0] == b.documents[b.gold[0]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_gold_position(tmp_path, shuffle):
    path = write(tmp_path, nq_record())
    [example] = loader.load("nq_open", data=path, gold_position=3, shuffle=shuffle)
    assert example.gold == (3,)
    assert example.documents[3].title == "T0"
    if not shuffle:
        assert [d.title for d in example.documents] == ["T1", "T2", "T3", "T0", "T4"]


def test_fewer_and_joined_documents(tmp_path):
    """The gold ones stay, then the first others; documents joined as they stand are gold where one
    of them was.
    """
    load = partial(loader.load, "musique", data=write(tmp_path, musique_record()))
    [three], [pairs] = load(documents=3), load(documents=3, joined=2)
    assert [document.title for document in three.documents] == ["T0", "T3", "T4"]
    assert three.gold == (1, 2)
    assert pairs.documents == (Document("T0", "p 0\nT3: p 3"), Document("T4", "p 4"))
    assert pairs.gold == (0, 1)
    for options, said in (
        ({"documents": 6}, "2 to 5 documents, not 6"),
        ({"documents": 0}, r"dataset musique\.documents: .* 1; got 0"),
        ({"joined": "2"}, r"dataset musique\.joined: .*; got '2'"),
    ):
        with pytest.raises(UserError, match=said):
            load(**options)


def test_musique_answers_hold_aliases_once(tmp_path):
    [example] = loader.load("musique", data=write(tmp_path, musique_record()))
    assert example.answers == ("me", "I")
    assert example.gold == (3, 4)
    assert example.key == "2hop__1_2"


def test_musique_can_ask_for_the_answer_alone():
    plain, short = (loader.make("musique", short_answers=given) for given in (False, True))
    assert plain.instruction == Musique.preamble
    assert short.instruction.startswith(f"{Musique.preamble} ")
    model = ModelEntry(source="smollm2-135m-instruct")
    made = [specify(making.make("naive"), one, model, 8).instruction for one in (plain, short)]
    assert made == [plain.instruction, short.instruction]


def test_musique_in_a_random_order_keeps_its_gold_paragraphs(tmp_path):
    path = write(tmp_path, musique_record())
    [given], [shuffled] = (
        loader.load("musique", data=path, **options) for options in ({}, {"shuffle": True})
    )
    order = shuffled_order(len(given.documents), 0, given.key)
    assert shuffled.documents == tuple(given.documents[i] for i in order)
    assert order != sorted(order)
    assert {shuffled.documents[i] for i in shuffled.gold} == {
        given.documents[i] for i in given.gold
    }


def test_lines_end_at_newline_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"a": "x\u2028y\u0085z"}\r\n\n{"a": 2}'.encode())
    assert list(read_jsonl(path)) == [(1, {"a": "x\u2028y\u0085z"}), (3, {"a": 2})]


# data set, changes of a good record (null: without the key), what is said
BAD_RECORDS = cases(r"""
nq_open, {question: null} -> no field 'question'; the record has 'answers', 'ctxs'
nq_open, {question: 7} -> field 'question' must be text, not 7
nq_open, {question: " "} -> field 'question' is empty
nq_open, {question: "\ud800"} -> unpaired surrogate
nq_open, {answers: me} -> field 'answers' must be a list, not "me"
nq_open, {answers: []} -> question without answers: 'who'
nq_open, {answers: [me, ""]} -> field 'answers[1]' is empty
nq_open, {ctxs: []} -> question without documents
nq_open, {ctxs: [text]} -> ctxs[0] must be an object
nq_open, {ctxs: [{title: T, text: t, isgold: true}, {title: T, text: " \n", isgold: true}]} ->
  ctxs[1]: field 'text' is empty
nq_open, {ctxs: [{title: T, text: t, isgold: 1}]} ->
  ctxs[0]: field 'isgold' must be true or false, not 1
musique, {answerable: false} -> MuSiQue-Full
musique, {answer_aliases: [3]} -> 'answer_aliases[0]' must be text, not 3
musique, {paragraphs: [{title: T, paragraph_text: p}]} -> no field 'is_supporting'
musique, {} -> same question as line 1 (key '2hop__1_2')
""")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [*BAD_RECORDS, ("nq_open", None, "must be a JSON object, not [1]")],
)
def test_a_bad_record_is_named(tmp_path, name, changes, said):
    made = {"nq_open": nq_record, "musique": musique_record}[name]
    good = made(question="fine") if name == "nq_open" else made()
    bad = [1]
    if changes is not None:
        bad = {key: value for key, value in made(**changes).items() if value is not None}
    path = write(tmp_path, good, bad)
    with pytest.raises(UserError) as error:
        loader.load(name, data=path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    cases("""
{name: nq-open} -> did you mean 'nq_open'
{gold_position: 5} -> gold_position 5 is beyond the 5 documents
{shuffle: "no"} -> got 'no'
{fold: tests} -> got 'tests'
{limit: 0} -> limit must be at least 1, not 0
{data: none.jsonl} -> none.jsonl: cannot be read: No such file
{data: .} -> cannot be read: Is a directory
{data: empty.jsonl} -> holds no records
"""),
)
def test_bad_arguments(tmp_path, arguments, said):
    write(tmp_path, nq_record())
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    given = {"name": "nq_open", "data": "data.jsonl"} | arguments
    with pytest.raises(UserError) as error:
        loader.load(**given | {"data": tmp_path / given["data"]})
    assert said in str(error.value)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Has MuSiQue's records on the hub be those of a file."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))

    def serves(file):
        files = {"data_files": str(file), "split": "train", "cache_dir": str(tmp_path / "cache")}
        monkeypatch.setattr(Musique, "hub", {"path": "json", **files})

    return serves


def test_a_hub_out_of_reach_is_one_line(hub, tmp_path):
    hub(tmp_path / "none.jsonl")
    with pytest.raises(
        UserError, match=r"could not be loaded from json .*none\.jsonl.*--data FILE"
    ) as error:
        loader.load("musique")
    assert "\n" not in str(error.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["study", "trace"])
def test_a_data_set_without_a_source_says_so(name):
    with pytest.raises(UserError, match=f"data set {name!r} has no source of its own.*--data"):
        loader.make(name).default_path()
