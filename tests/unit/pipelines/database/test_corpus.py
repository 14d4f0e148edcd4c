"""Corpora: formats told apart, shards that share every document once, damage named by file and
line.
"""

import bz2
import gzip

import pytest

from json_lines import write_lines
from ragauge.errors import UserError
from ragauge.pipelines.database import documents
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.documents import CorpusDocument, ShardShare

WHOLE = ShardShare()


def read(path, share=WHOLE, **options):
    return list(Corpus((str(path),), **options).documents(share))


def texts(path, share=WHOLE, **options):
    return [document.text for document in read(path, share, **options)]


def records(path, count):
    return write_lines(path, ({"text": f"text {n}", "title": f"T{n}"} for n in range(count)))


def test_many_files_are_dealt_whole(tmp_path):
    for n in range(4):
        records(tmp_path / f"{n}.jsonl", 3)
    parts = [read(tmp_path / "*.jsonl", ShardShare(n, 2)) for n in range(2)]
    files = [{document.place.rpartition(":")[0] for document in part} for part in parts]
    assert files == [
        {str(tmp_path / f"{n}.jsonl") for n in (0, 2)},
        {str(tmp_path / f"{n}.jsonl") for n in (1, 3)},
    ]
    identity = Corpus((str(tmp_path / "*.jsonl"),)).identity(ShardShare(1, 2))
    assert [part["file"] for part in identity["parts"]] == ["1.jsonl", "3.jsonl"]


def test_blank_records_are_counted_apart_from_the_limit(tmp_path, caplog):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(f'{{"text": "{text}"}}\n' for text in ["", "a", " ", "b", "c", "d"]))
    with caplog.at_level("INFO", "ragauge"):
        assert texts(path, limit=3) == ["a", "b", "c"]
    assert [record.getMessage() for record in caplog.records] == [
        f"corpus {path}: 2 records without text left out"
    ]
    dealt = sorted(text for n in range(2) for text in texts(path, ShardShare(n, 2), limit=3))
    assert dealt == ["a", "b", "c"]


EXTRACTED = (
    '<doc id="1" title="A &amp; B">\nA &amp; B\n\nIt is &amp;lt; &copy;.\n</doc>\n'
    '<doc id="2" title="C">\nC\n</doc>\n'
)
WIKITEXT = " \n = Lobster = \n \n It lives . \n = = Range = = \n Sea . \n = Crab = \n Too . \n"
LOBSTER = "= Lobster = \n \n It lives . \n = = Range = = \n Sea ."


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (EXTRACTED, [(1, "A & B", "A & B\n\nIt is &lt; &copy;."), (6, "C", "C")]),
        (WIKITEXT, [(2, "Lobster", LOBSTER), (7, "Crab", "= Crab = \n Too .")]),
        ("\none\ntwo\n\n\nthree\n", [(2, "", "one\ntwo"), (5, "", "three")]),
    ],
    ids=["documents of WikiExtractor", "articles of WikiText", "parts between blank lines"],
)
def test_plain_text_is_parted_by_its_form(content, found, tmp_path):
    path = tmp_path / "w.txt"
    path.write_text(content)
    assert read(path) == [
        CorpusDocument(f"{path}:{line}", title, text) for line, title, text in found
    ]


def test_a_mediawiki_export_gives_articles(tmp_path):
    body = "The town lies on a river. " * 200
    page = f"<page><title>Town</title><ns>0</ns><revision><text>{body}\n== Days ==\nOld.</text></revision></page>"
    path = tmp_path / "export.xml.bz2"
    path.write_bytes(bz2.compress(f"<mediawiki>{page}{page}</mediawiki>".encode()))
    assert [d.title for d in read(path, ShardShare(1, 2))] == ["Town"]
    assert texts(path)[0].endswith("Days\n\nOld.")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.jsonl", b'{"text": "a"}\n{"text": \n', r"c\.jsonl:2: not valid JSON"),
        ("c.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"c\.jsonl:2: not valid JSON"),
        ("c.jsonl", b'{"text": "a"}\n[1]\n', r"c\.jsonl:2: must be a JSON object"),
        ("c.jsonl", b'{"text": 3}\n', r"c\.jsonl:1: field 'text' must be text"),
        ("c.jsonl", b'{"txt": "a"}\n', r"c\.jsonl:1: no field 'text'"),
        ("c.jsonl", b'{"text": "\\ud800"}\n', r"c\.jsonl:1: .*surrogate"),
        (
            "c.jsonl.gz",
            gzip.compress(b'{"text": "a"}\n' * 9999)[:-30],
            r"c\.jsonl\.gz:\d+: gzip file truncated",
        ),
        ("c.txt", b"fine\n\xc3(\n", r"c\.txt:2: not UTF-8 text"),
        ("c.txt.gz", b"\x1f\x8bnothing", r"c\.txt\.gz:1: gzip file truncated or damaged"),
        ("c.txt", b'<doc id="1">\ntext\n', r"c\.txt:1: a document without </doc>"),
        ("c.txt", b'<doc id="1">\n</doc>\nstray\n', r"c\.txt:3: 'stray': not in the order"),
        ("c.txt", b'<doc id="1">\n<doc id="2">\n', r"c\.txt:2: '<doc id=.*': not in the order"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(path)


def test_an_endless_line_is_refused_before_it_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 100)
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a"}\n{"text": "' + "b" * 200 + '"}\n')
    with pytest.raises(UserError, match=r"c\.jsonl:2: line longer than 100 bytes"):
        read(path)


def test_hub_records_are_streamed_and_dealt(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*names, **options):
        asked.append((names, options))
        return ({"text": f"t{n}"} for n in range(10**9))  # which nobody could load whole

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert texts("hf:allenai/c4:en@abc", ShardShare(1, 2), limit=6) == ["t1", "t3", "t5"]
    assert asked == [
        (("allenai/c4", "en"), {"revision": "abc", "split": "train", "streaming": True})
    ]
    assert Corpus(("hf:allenai/c4:en@abc",)).identity(ShardShare())["parts"][0]["revision"] == "abc"


def test_a_shard_of_a_hub_data_set_opens_its_own_files_alone(
    monkeypatch,
):
    import datasets

    opened = []

    def read_files(files):
        for file in files:
            opened.append(file)
            yield from ({"text": f"t{file}.{n}"} for n in range(2))

    stream = datasets.IterableDataset.from_generator(read_files, gen_kwargs={"files": [0, 1, 2]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **options: stream)
    every = [f"t{file}.{n}" for file in range(3) for n in range(2)]
    assert (
        sorted(text for number in range(2) for text in texts("hf:a/b@c", ShardShare(number, 2)))
        == every
    )
    assert sorted(opened) == [0, 1, 2]
    assert (
        sorted(text for number in range(4) for text in texts("hf:a/b@c", ShardShare(number, 4)))
        == every
    )
    assert texts("hf:a/b@c", ShardShare(1, 2), limit=4) == ["t0.1", "t1.1"]


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch):
    import datasets

    def load_dataset(*names, **options):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        UserError,
        match=r"corpus hf:allenai/c4:en@a: the hub does not answer .*no route.*local files",
    ):
        texts("hf:allenai/c4:en@a")


def test_the_shared_samples_are_read(shared_data):
    for name, count in (("c4-en.jsonl.gz", 700), ("wikipedia-docs.txt.gz", 2349)):
        assert len(read(shared_data / "corpora" / name)) == count
    articles = read(shared_data / "corpora" / "wikitext-2-raw.valid.txt.gz")
    assert len(articles) == 60
    assert articles[0].title == "Homarus gammarus"
