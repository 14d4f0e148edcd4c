"""The documents of a study: formats, what cannot be read, passages, near-duplicates."""

import gzip
import io
import json
import logging
import os
import signal
import sys
import time

import pytest

from ragauge.datasets.base.dataset import Document
from ragauge.errors import UserError
from ragauge.study import documents, folder, formats, passages, reader_process
from ragauge.study.documents import SourceDocuments
from ragauge.study.errors import UnreadableError
from ragauge.study.questions import StudyQuestion
from ragauge.study.retrieval import gold_passages
from study_files import docx, paragraph, pdf
from tiny_models import byte_tokenizer as tokenizer

STUDY = "takes the packages of the extra study"
PROSE = "It grows on hills, in shade and rain, and is picked by hand from spring to autumn. " * 4


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_page_is_decoded_as_it_declares_or_as_utf_8(encoding):
    pytest.importorskip("trafilatura", reason=STUDY)
    assert (
        "Café" in formats.html(f'<meta charset="{encoding}"><p>Café. {PROSE}'.encode(encoding)).text
    )


def test_lines_of_a_pdf_become_paragraphs_and_hyphenated_words_whole():
    pytest.importorskip("pypdf", reason=STUDY)
    read = formats.pdf(
        pdf(["Tea is grown in As-", "sam and in Darjeeling-", "Himalaya."], ["Page two."])
    ).text
    assert read == "Tea is grown in Assam and in Darjeeling- Himalaya.\n\nPage two."


def encrypted(password):
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(["Secret tea."]))))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def test_a_pdf_that_only_restricts_printing_is_read():
    pytest.importorskip("pypdf", reason=STUDY)
    assert formats.pdf(encrypted("")).text == "Secret tea."


LAUGHS = "<!DOCTYPE x [<!ENTITY a0 'lol'>" + "".join(
    f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10)
)


def unreadable():
    whole = pdf(["Tea is grown in Assam."] * 40)
    return {
        "empty.pdf": (b"", "empty"),
        "blank.txt": (b" \n", "empty"),
        "locked.pdf": (encrypted("secret"), "encrypted; save it without a password"),
        "scan.pdf": (pdf([], []), "no text on any of its 2 pages: a scan needs text recognition"),
        "cut.pdf": (whole[:120], "not a PDF, or damaged"),
        "named.pdf": (b"<html>no PDF", "not a PDF, or damaged"),
        "script.html": (b"<script>draw()</script>", "holds no text"),
        "latin.txt": ("Café".encode("latin-1"), "not UTF-8 text (byte 3)"),
        "cut.docx": (docx(paragraph("Tea."))[:200], "not a Word document, or damaged"),
        "locked.docx": (
            b"\xd0\xcf\x11\xe0 and so on",
            "encrypted, or in the format of Word before 2007",
        ),
        "bomb.docx": (
            docx(paragraph("a" * (40 << 20))),
            "unpacks to 40 MB of text; read are up to 32 MB",
        ),
        "laughs.docx": (
            docx(paragraph("x").replace(">x<", ">&a9;<"), declared=f"{LAUGHS}]>"),
            "not a Word document",
        ),
    }


def test_files_that_cannot_be_read_are_skipped_and_named(tmp_path, caplog):
    for library in ("trafilatura", "mammoth", "pypdf"):
        pytest.importorskip(library, reason=STUDY)
    cases = unreadable()
    for name, (content, _) in cases.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tea.md").write_text("Tea.", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "ragauge"):
        found = documents.read(tmp_path)
    assert found.documents == (Document("tea", "Tea."),)
    assert found.unread["skipped"].keys() == cases.keys()
    for name, (_, reason) in cases.items():
        assert reason in found.unread["skipped"][name], name
        assert "\n" not in found.unread["skipped"][name]
    assert caplog.messages[0] == f"skipped {tmp_path / 'blank.txt'}: empty"
    assert caplog.messages[-1] == "skipped 2 more files, which retrieval.json of the study names"


def test_pages_of_a_pdf_without_text_are_told(tmp_path, caplog):
    pytest.importorskip("pypdf", reason=STUDY)
    (tmp_path / "partly.pdf").write_bytes(pdf(["Tea."], [], ["More tea."], []))
    found = documents.read(tmp_path)
    assert found.documents == (Document("partly", "Tea.\n\nMore tea."),)
    missing = "2 of 4 pages hold no text, the first is page 2"
    assert found.unread["read_in_part"] == {"partly.pdf": missing}
    assert caplog.messages == [f"read in part: {tmp_path / 'partly.pdf'}: {missing}"]


def test_a_pdf_whose_font_names_no_letters_is_warned_of():
    """Such as a subset of a font without its table of characters, read as private and control
    characters.
    """
    pytest.importorskip("pypdf", reason=STUDY)
    read = formats.pdf(pdf(["Tea."], [r"\001\002\003\004\005\006 a"]))
    assert read.warning == "1 of 2 pages hold garbled text, the first is page 2"


def test_a_huge_file_is_not_opened(tmp_path):
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(formats.LARGEST_BYTES + 1)  # sparse
    with pytest.raises(UserError, match=r"huge\.txt: 100 MB; files are read up to 100 MB"):
        documents.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        (
            "a.pdf",
            "pypdf",
            "PDF documents are read with pypdf, which is not installed: pip install 'ragauge[study]'",
        ),
        (
            "a.html",
            "trafilatura",
            "HTML documents are read with trafilatura, which is not installed",
        ),
        ("a.docx", "mammoth", "DOCX documents are read with mammoth"),
    ],
)
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch, name, module, message):
    (tmp_path / name).write_bytes(b"content")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError) as raised:
        formats.read(tmp_path / name)
    assert message in str(raised.value)


def slow_documents():
    """Documents of sizes that anybody may have, and that take quadratic time or more to read."""
    spans = "<span>x y</span>\n" * 200_000
    nested = "<div>" * 200_000
    return {"spans.html": f"<pre>{spans}</pre>", "nested.html": f"{nested}<p>{'tea ' * 200_000}"}


@pytest.fixture
def readers_run(monkeypatch):
    """Have the processes that read documents run other code."""
    spawn = reader_process.subprocess.Popen

    def run(code):
        monkeypatch.setattr(
            reader_process.subprocess,
            "Popen",
            lambda command, **pipes: spawn([command[0], "-c", code, command[-1]], **pipes),
        )

    return run


def test_a_document_that_reads_for_minutes_is_skipped_by_name(
    tmp_path, monkeypatch, caplog, readers_run
):
    pytest.importorskip("trafilatura", reason=STUDY)
    monkeypatch.setattr(reader_process, "LONGEST_S", 2)
    monkeypatch.setattr(reader_process, "LONGEST_S_PER_MB", 0)
    readers_run(
        "from ragauge.study import reader_process as r; r.LONGEST_S = 2; r.LONGEST_S_PER_MB = 0; r._main()"
    )
    for name, content in slow_documents().items():
        (tmp_path / name).write_text(content)
    for name in ("a.md", "tea.md"):  # before and after them
        (tmp_path / name).write_text("Tea.")
    started = time.monotonic()
    found = documents.read(tmp_path)
    assert time.monotonic() - started < 20
    assert [document.title for document in found.documents if document.text == "Tea."] == [
        "a",
        "tea",
    ]
    assert found.unread["skipped"]["spans.html"] == "not read within 2 s"
    assert f"skipped {tmp_path / 'spans.html'}: not read within 2 s" in caplog.messages


def test_no_module_of_the_folder_is_run(tmp_path, monkeypatch):
    for module in ("trafilatura", "pypdf", "pickle", "ragauge"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "a.md").write_text("Tea.")
    (tmp_path / "b.html").write_text("<html><body><p>Milk.</p></body></html>")
    monkeypatch.chdir(tmp_path)
    found = documents.read(tmp_path)
    assert {document.text for document in found.documents} == {"Tea.", "Milk."}
    assert not (tmp_path / "ran").exists()


def test_a_document_that_ends_its_reader_is_skipped_by_name(tmp_path, monkeypatch):
    spawn = reader_process.subprocess.Popen
    for number in range(3):
        (tmp_path / f"{number}.md").write_text("Tea.")
    starts = []

    def once(command, **pipes):
        starts.append(command)
        dying = [command[0], "-c", "import os; os.abort()"]
        return spawn(dying if len(starts) == 1 else command, **pipes)

    monkeypatch.setattr(reader_process.subprocess, "Popen", once)
    found = documents.read(tmp_path)
    assert found.unread["skipped"] == {"0.md": f"its reader ended with exit code {-signal.SIGABRT}"}
    assert [document.title for document in found.documents] == ["1", "2"]


HOSTILE = """
import pathlib, pickle, sys
from multiprocessing.connection import Connection
class Touch:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path({marker!r}),)
pipe = Connection(int(sys.argv[1]))
pipe.recv_bytes()
pipe.send_bytes({sent})
pipe.recv_bytes()
"""


@pytest.mark.parametrize("sent", ["pickle.dumps(Touch())", "b'{\"text\": 5}'", "b'[1, 2, 3]'"])
def test_nothing_but_a_text_is_taken_from_a_reader(tmp_path, readers_run, sent):
    readers_run(HOSTILE.format(marker=str(tmp_path / "marker"), sent=sent))
    (tmp_path / "a.md").write_text("Tea.")
    with reader_process.ReaderProcess() as reader, pytest.raises(UnreadableError):
        reader.read(tmp_path / "a.md")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("filler", ["#", " ", " #", "\t", "=", "`"])
def test_the_time_to_find_a_heading_grows_with_the_text(filler):
    started = time.monotonic()
    for content in (
        f"# x{filler * 100_000}x\n",
        f"# {filler * 100_000}x",
        f"{filler * 100_000}\nx",
    ):
        formats.markdown(content.encode())
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("text", "title"),
    [("# Tea ##\n", "Tea"), ("## Tea# \t\nx", "Tea"), ("Tea\n===\n", "Tea"), ("#Tea", "")],
)
def test_a_heading_is_read_without_its_marks(text, title):
    assert formats.markdown(text.encode()).title == title


def test_documents_are_named_by_their_paths_and_by_suffix_where_two_share_one(tmp_path, caplog):
    (tmp_path / "guide").mkdir()
    (tmp_path / ".git").mkdir()
    for name in (
        "guide/start.md",
        "guide/start.txt",
        "other.TXT",
        ".git/HEAD.txt",
        "~$other.md",
        "table.xlsx",
        "old.txt.gz",
    ):
        (tmp_path / name).write_text("Here.", encoding="utf-8")
    (tmp_path / "more.jsonl").write_text('{"title": "More", "text": "There."}\n', encoding="utf-8")
    found = documents.read(tmp_path)
    assert [d.title for d in found.documents] == [
        "guide/start.md",
        "guide/start.txt",
        "More",
        "other",
    ]
    assert found.unread["not_read"] == {".txt.gz": 1, ".xlsx": 1}
    assert caplog.messages == [
        "not read, being of other kinds: 1 .txt.gz, 1 .xlsx; convert them to "
        ".md, .txt, .html, .htm, .xhtml, .pdf, .docx"
    ]


def test_a_study_whose_folder_cannot_be_named_in_files_is_refused(tmp_path):
    path = tmp_path / os.fsdecode(b"Pr\xfcfung")
    with pytest.raises(UserError, match=r"--out: .*Pr.udcfcfung"):
        folder.check_writable(path)
    assert not path.exists()


TITLES = {
    "front.md": ("---\ntitle: 'Green tea'\nauthor: A\n---\n# Other\n", "Green tea"),
    "toml.md": ('+++\ntitle = "Black tea"\n+++\nText.', "Black tea"),
    "heading.md": ("Text.\n\n```\n# a remark\n```\n\n## [White](w.md) `tea` ##\n", "White tea"),
    "underlined.md": ("White tea\n=========\nText.", "White tea (underlined)"),
    "again.md": ("# White tea", "White tea (again)"),
    "line.md": ("---\n\nA rule, and no front matter.\n\n---\n", "line"),
    "crlf.md": ("---\r\ntitle: Mate\r\n---\r\nText.\r\n", "Mate"),
    "block.md": ("---\ntitle: >\n  Folded\n---\nText.", "block"),
    "note.txt": ("# White tea", "note"),
}


def test_a_file_name_that_is_not_utf_8_is_a_title_that_can_be_written(tmp_path):
    for name, content in (
        (b"Pr\xfcfung.txt", "Tea."),
        (b"\xff/\xc3\xa9.md", "Milk."),
        (b"\xfe.txt", ""),
    ):
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    found = documents.read(tmp_path)
    titles = {document.title: document.text for document in found.documents}
    assert titles == {r"Pr\xfcfung": "Tea.", r"\xff/é": "Milk."}
    assert found.unread["skipped"] == {r"\xfe.txt": "empty"}
    json.dumps([*titles, *found.names], ensure_ascii=False).encode()


def test_documents_are_titled_as_they_title_themselves(tmp_path):
    """A title of several is followed by the path, by which questions may name any document."""
    for name, (text, _) in TITLES.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    expected = {name: title for name, (_, title) in TITLES.items()} | {
        "heading.md": "White tea (heading)"
    }
    made = documents.read(tmp_path)
    assert [document.title for document in made.documents] == [
        expected[name] for name in sorted(TITLES)
    ]
    assert made.names == expected | {
        name.rpartition(".")[0]: title for name, title in expected.items()
    }
    texts = {document.title: document.text.strip() for document in made.documents}
    assert [texts[title] for title in ("Green tea", "Black tea", "Mate")] == [
        "# Other",
        "Text.",
        "Text.",
    ]
    assert "A rule" in texts["line"]
    corpus = passages.build(made, tokenizer(), 4096, 0)
    assert {"Green tea", "front", "front.md"} <= corpus.originals.keys()
    assert corpus.originals["front.md"] == "Green tea"


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(UserError, match="absent: no such folder or file"):
        documents.read(tmp_path / "absent")
    with pytest.raises(
        UserError, match=r"holds no file that ends with \.md, .*\.pdf, \.docx, \.jsonl"
    ):
        documents.read(tmp_path)
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"table\.xlsx ends with none of \.md, "):
        documents.read(tmp_path / "table.xlsx")


def test_a_single_file_is_read_and_lines_without_a_title_are_named_by_their_place(
    tmp_path,
):
    """As in the official files of C4, which have `text`, `timestamp` and `url`."""
    (tmp_path / "tea.md").write_text("Tea.", encoding="utf-8")
    lines = [{"text": "There.", "url": "https://example.org"}, {"title": "Own", "text": "Here."}]
    (tmp_path / "c4.jsonl.gz").write_bytes(
        gzip.compress("\n\n".join(map(json.dumps, lines)).encode())
    )
    expected = (Document("c4/1", "There."), Document("Own", "Here."))
    assert documents.read(tmp_path / "c4.jsonl.gz").documents == expected
    assert documents.read(tmp_path / "tea.md").documents == (Document("tea", "Tea."),)
    assert documents.read(tmp_path).documents == (*expected, Document("tea", "Tea."))


def test_empty_titles_and_texts_of_json_lines_are_counted(tmp_path, caplog):
    """As in corpora of BEIR."""
    rows = [
        ("d1", "", "Tea is green."),
        ("d2", "Bakery", "Rye."),
        ("d3", "", ""),
        ("d4", None, "Oats."),
        ("d5", "T", " "),
    ]
    lines = [
        json.dumps({"_id": one, "title": title, "text": text, "metadata": {}})
        for one, title, text in rows
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "none.jsonl").write_text('{"title": "T", "text": ""}\n', encoding="utf-8")
    found = documents.read(tmp_path)
    titled = [("corpus/1", "Tea is green."), ("Bakery", "Rye."), ("corpus/4", "Oats.")]
    assert found.documents == tuple(Document(*one) for one in titled)
    assert found.unread["read_in_part"] == {
        "corpus.jsonl": "lines with an empty title: 3, lines with an empty text: 2"
    }
    assert found.unread["skipped"] == {"none.jsonl": "lines with an empty text: 1"}
    assert found.unread["read_in_part"]["corpus.jsonl"] in caplog.text
    (tmp_path / "none.jsonl").write_text('{"title": "T", "txt": "Tea."}\n', encoding="utf-8")
    with pytest.raises(
        UserError, match=r"none\.jsonl:1: no field 'text'; did you mean 'txt'\? the record has"
    ):
        documents.read(tmp_path)


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_no_passage_is_longer_than_its_tokens(tokens):
    read = tokenizer()
    text = "One two. " + "word " * 60 + "end. " + "x" * 40 + ". Short again."
    made = list(passages.cut("t", text, read, tokens, 0))
    counts = [len(read(passage.text, add_special_tokens=False)["input_ids"]) for passage in made]
    assert max(counts) <= tokens
    assert "".join("".join(p.text for p in made).split()) == "".join(text.split())


def test_a_long_sentence_is_cut_between_words():
    made = list(passages.cut("t", "word " * 60, tokenizer(), 16, 0))
    assert len(made) > 1
    assert {word for passage in made for word in passage.text.split()} == {"word"}


def test_a_long_table_is_cut_between_rows():
    rows = [f"| leaf {i} | {i} crowns |" for i in range(30)]
    made = list(passages.cut("t", "\n".join(rows), tokenizer(), 64, 0))
    assert len(made) > 5
    assert [line for passage in made for line in passage.text.split("\n")] == rows


LONG = " ".join(f"word{i}" for i in range(200))


def test_near_duplicates_are_marked_or_dropped():
    found = SourceDocuments(
        (Document("first", f"{LONG}."), Document("copy", f"{LONG}!"), Document("third", "Tea."))
    )
    marked = passages.build(found, tokenizer(), 4096, 0)
    assert [(p.document, p.near_duplicate) for p in marked.passages] == [
        ("first", False),
        ("copy", True),
        ("third", False),
    ]
    assert marked.originals == {"first": "first", "copy": "first", "third": "third"}
    assert (
        str(marked)
        == "3 documents, 3 passages; 1 duplicate documents, 1 duplicate passages (marked)"
    )
    dropped = passages.build(found, tokenizer(), 4096, 0, drop=True)
    assert [p.document for p in dropped.passages] == ["first", "third"]
    assert dropped.counts["dropped_passages"] == 1


def test_a_dropped_passage_of_the_gold_document_is_gold_where_it_stands_first():
    more = LONG.replace("word", "leaf")
    found = SourceDocuments(
        (Document("first", f"{LONG}."), Document("gold", f"{LONG}. {more} in Assam."))
    )
    made = passages.build(found, tokenizer(), len(LONG) + 20, 0, drop=True)
    assert [p.document for p in made.passages] == ["first", "gold"]
    questions = [StudyQuestion("?", (answer,), "gold") for answer in ("word7", "Assam")]
    assert list(gold_passages(questions, made.passages, made.originals)) == [[0], [1]]
