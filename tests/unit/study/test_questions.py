"""A study's questions as people write and export them: the same questions from every file, or one
line that refuses.
"""

import io
import json
import re
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragauge.errors import UserError
from ragauge.study.questions import StudyQuestion, read_questions
from tables import cases

HOLM = StudyQuestion("Who lit the lighthouse first?", ("Greta Holm",))
RYE = StudyQuestion("Which bread, of rye?", ("rye", "rye bread"), "town")
PLAIN = "question,answers\nWho lit the lighthouse first?,Greta Holm\n"
FULL = f'question,answers,gold\n{HOLM.question},Greta Holm,\n"{RYE.question}",rye|rye bread,town\n'


def read(folder, content, name="q.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_questions(path)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (PLAIN, "Q.CSV"),
        (PLAIN.replace("question,answers", " QUESTION , Answer "), "q.csv"),
        (PLAIN.replace(",", "\t"), "q.csv"),
        (b"\xfe\xff" + PLAIN.encode("utf-16-be"), "q.tsv"),
        ("\n,,\n" + PLAIN.replace("\n", "\n\n,\n  \n"), "q.csv"),
        ("id,answers,question\n7,Greta Holm,Who lit the lighthouse first?\n", "q.csv"),
        (PLAIN.replace("first?,", "first?, "), "q.csv"),
        ("question,answers,gold\nWho lit the lighthouse first?,Greta Holm\n", "q.csv"),
        (json.dumps({"Question": HOLM.question, "answer": "Greta Holm", "gold": None}), "q.jsonl"),
        (json.dumps({"question": HOLM.question, "Answers": ["Greta Holm"], "id": 7}), "q.JSONL"),
    ],
)
def test_what_people_export_is_read(tmp_path, content, name):
    """Other separators, line ends, encodings and columns are drawn below."""
    assert read(tmp_path, content, name) == [HOLM]


@given(
    st.lists(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=3), max_size=3),
    st.sampled_from([None, 1]),
)
@example([[[2, 0]], [[1]]], None)
def test_squads_nested_files_are_read(tmp_path_factory, counts, indent):
    """Articles, paragraphs, and questions with so many answers."""
    expected = []
    data = []
    for article in counts:
        paragraphs = []
        for paragraph in article:
            qas = []
            for count in paragraph:
                answers = [f"word {i}" for i in range(count)]
                question = f"Which is {len(expected)}?"
                expected.append(StudyQuestion(question, tuple(answers)))
                texts = [{"text": text, "answer_start": 3} for text in answers]
                facts = {"id": str(len(expected)), "is_impossible": not count}
                qas.append({"question": question, "answers": texts, **facts})
            paragraphs.append({"context": "word 0, word 1", "qas": qas})
        data.append({"title": "Words", "paragraphs": paragraphs})
    content = json.dumps({"version": "v2.0", "data": data}, indent=indent)
    folder = tmp_path_factory.mktemp("squad")
    if expected:
        assert read(folder, content, "dev.json") == expected
    else:
        with pytest.raises(UserError, match="no questions"):
            read(folder, content, "dev.json")


@pytest.mark.parametrize(
    ("data", "place"),
    cases("""
[{question: "Who?", answers: [a]}] -> data[0]: no field 'paragraphs'
[{paragraphs: [{qas: []}, {qas: 7}]}] -> data[0]: paragraphs[1]: field 'qas'
[{paragraphs: [{qas: [{question: 7}]}]}] -> qas[0]: field 'question'
[{paragraphs: [{qas: [{question: "Who?", answers: [{}]}]}]}] -> 'answers[0]'
{paragraphs: []} -> field 'data' must be a list
"""),
)
def test_what_is_not_as_in_squad_is_refused_with_its_place(tmp_path, data, place):
    with pytest.raises(UserError, match=re.escape(place)):
        read(tmp_path, json.dumps({"data": data}), "dev.json")


def test_quotes_line_ends_and_commas_inside_cells_are_read(tmp_path):
    assert read(tmp_path, FULL) == [HOLM, RYE]
    assert read(tmp_path, FULL.replace(",", ";").replace("; of", ", of")) == [HOLM, RYE]
    line = {"question": RYE.question, "answers": list(RYE.answers), "gold": RYE.gold}
    assert read(tmp_path, json.dumps(line), "q.jsonl") == [RYE]
    [asked] = read(
        tmp_path, 'question,answers\n"Who lit the ""lighthouse""\nfirst?",Greta Holm\n\n,\n'
    )
    assert asked == StudyQuestion('Who lit the "lighthouse"\nfirst?', ("Greta Holm",))
    assert read(tmp_path, "question\nname of the keeper\n") == [
        StudyQuestion("name of the keeper", ())
    ]
    assert read(tmp_path, "question,gold\nWho?,a\n") == [StudyQuestion("Who?", (), "a")]
    assert read(tmp_path, '{"question": "Who?"}\n', "q.jsonl") == [StudyQuestion("Who?", ())]


CUT = "a cell that holds a comma or a line end needs quotes"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            f"{PLAIN}When was it lit, and by whom?,1874|Greta Holm\n",
            f"q.csv:3: 3 cells in 2 columns.*{CUT}",
        ),
        (
            f"{PLAIN}When was it lit, and by whom?\n",
            f"q.csv:3: 2 cells in 2 columns.*'When was it lit'; {CUT}",
        ),
        (
            "question, answers\nWhen was it lit, and by whom?\n",
            f"q.csv:2: 2 cells in 2 columns.*{CUT}",
        ),
        ("question\nWhen was it lit, and by whom?\n", f"q.csv:2: 2 cells in 1 columns.*{CUT}"),
        ("question,answers,\nWhen was it lit, and by whom?,1874\n", CUT),
        ("question,answers\nWho lit\nit?,Greta Holm\n", f"q.csv:2: 1 cells in 2 columns.*{CUT}"),
        (
            "question;answers\nWho;What?;Holm\n",
            "q.csv:2: 3 cells in 2 columns, cut at every semicolon",
        ),
        (
            'question,answers\n"Who said "hi, there"?",Holm\n',
            "q.csv:2: .*a quote inside quotes is written twice",
        ),
        ('question,answers\nWho?,Holm\n"Where, then?,Amsel\n', "q.csv:3: unexpected end of data"),
        ('question,answers\n"Who said \\"hi\\"?",Holm\n', "q.csv: a backslash before a quote"),
        (
            "question,answers\nWho?,\"['Holm', 'Greta']\"\n",
            r"q.csv:2: answers .*write '\|' between answers, no list",
        ),
        (
            "frage;antwort\nWer?;Holm\n",
            "q.csv:1: no column 'question'; the first line, cut at every semicolon, has",
        ),
        (
            "Who?,Holm\nWhere?,Amsel\n",
            "q.csv:1: no column 'question'; .* cut at every comma, has 'Who\\?', 'Holm'",
        ),
        (
            "Questions,answers\nWho?,Holm\n",
            "q.csv:1: unknown column 'Questions'; did you mean 'question'?",
        ),
        (
            "question,answers,Gold title\nWho?,Holm,town\n",
            "unknown column 'Gold title'; did you mean 'gold'?",
        ),
        ("question,answer,Answers\nWho?,a,b\n", "q.csv:1: the column 'answers' is there twice"),
        (
            PLAIN.replace("Holm", "Hölm").encode("cp1252"),
            "q.csv: neither UTF-8 nor UTF-16 .* iconv -f WINDOWS-1252",
        ),
        (
            PLAIN.encode("utf-16-le"),
            "q.csv: neither UTF-8 nor UTF-16 with a byte order mark; save it as CSV UTF-8",
        ),
        ("question,answers\n,a\n", "q.csv:2: field 'question' is empty"),
        ("", "q.csv: no questions"),
    ],
)
def test_what_may_be_misread_is_refused_with_its_line(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as refused:
        read(tmp_path, content)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "q.xlsx",
            b"PK\x03\x04",
            r"questions are read from files that end with \.csv, \.tsv, \.jsonl",
        ),
        (
            "q.jsonl",
            b'{"question": "Who?", "answres": ["Holm"]}',
            "q.jsonl:1: unknown column 'answres'; did you mean",
        ),
        (
            "q.jsonl",
            b'{"text": "Who?", "answers": ["Holm"]}',
            "q.jsonl:1: no field 'question'; the record has 'text'",
        ),
        (
            "q.jsonl",
            '{"question": "Who?"}\n'.encode("utf-16"),
            "q.jsonl:1: .*convert it to UTF-8, as with iconv",
        ),
        (
            "q.jsonl",
            b'{"question": "Who?"}\n{"question": "Where?", "answers": ["a"], "answers": ["b"]}\n',
            "q.jsonl:2: 'answers' stands twice in one object",
        ),
        (
            "q.json",
            b'[{"question": "Who?"},\n {"question": "Where?", "question": "When?"}]',
            "q.json: 'question' stands twice in one object",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, content, name)


# --- any dialect ---


@dataclass(frozen=True)
class Dialect:
    separator: str = ","
    quotes: str = "needed"  # or always, never
    doubles: bool = True  # quotes inside quotes; else a backslash before them
    line_end: str = "\n"
    encoding: str = "utf-8"
    blank: str = ""  # after separators
    header: tuple[str, str] = ("question", "answers")
    blank_rows: bool = False
    index: bool = False
    is_first: bool = True  # the question
    left_at_the_end: int = 0  # empty cells

    @property
    def is_common(self):
        return self.quotes != "never" and self.doubles and self.encoding != "cp1252"

    def cell(self, text):
        needs = any(mark in text for mark in (self.separator, '"', "\n", "\r"))
        if self.quotes == "never" or (self.quotes == "needed" and not needs):
            return text
        return '"{}"'.format(text.replace('"', '""' if self.doubles else '\\"'))

    def write(self, questions):
        out = io.StringIO()
        rows = [self.header, *((one.question, "|".join(one.answers)) for one in questions)]
        for number, row in enumerate(rows):
            cells = [*map(self.cell, row if self.is_first else reversed(row))]
            cells = [
                *(["" if number == 0 else str(number)] * self.index),
                *cells,
                *[""] * self.left_at_the_end,
            ]
            out.write(f"{self.separator}{self.blank}".join(cells) + self.line_end)
            out.write(f"{self.separator}{self.line_end}{self.line_end}" * self.blank_rows)
        return out.getvalue().encode(self.encoding)


LETTERS = st.sampled_from([*"abé漢 ,;\t\"'.?!", ", ", "\n"])
TEXTS = st.lists(LETTERS, min_size=1, max_size=6).map("".join).map(str.strip).filter(bool)
ANSWERS = st.lists(TEXTS.filter(lambda text: not text.endswith("?")), max_size=2).map(tuple)
QUESTIONS = st.lists(
    st.builds(StudyQuestion, TEXTS, ANSWERS), min_size=1, max_size=3, unique_by=lambda q: q.question
)
DIALECTS = st.builds(
    Dialect,
    separator=st.sampled_from(",;\t"),
    quotes=st.sampled_from(["needed", "always", "never"]),
    doubles=st.booleans(),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    blank=st.sampled_from(["", " "]),
    header=st.sampled_from(
        [("question", "answers"), ("Question ", "ANSWER"), ("QUESTION", "Answers")]
    ),
    blank_rows=st.booleans(),
    index=st.booleans(),
    is_first=st.booleans(),
    left_at_the_end=st.integers(0, 2),
)


@given(QUESTIONS, DIALECTS)
@example([StudyQuestion("a, b", ("c",))], Dialect(quotes="never"))
@example([StudyQuestion('"', ("x",)), StudyQuestion("q", (",a",))], Dialect(doubles=False))
def test_any_dialect_gives_the_same_questions_or_is_refused(tmp_path_factory, questions, dialect):
    texts = [text for one in questions for text in (one.question, *one.answers)]
    if dialect.quotes == "never" and any(
        re.search(r'\n|(^|[,;\t]) *"|^[,;\t ]*$', text) for text in texts
    ):
        return  # such a file says something else, to any reader
    try:
        content = dialect.write(questions)
    except UnicodeEncodeError:
        return
    path = tmp_path_factory.getbasetemp() / "dialect.csv"
    path.write_bytes(content)
    if dialect.is_common:
        assert read_questions(path) == questions
    else:
        with suppress(UserError):
            assert read_questions(path) == questions


def test_a_question_that_is_there_twice_is_used_once_with_a_warning(tmp_path, caplog):
    questions = read(tmp_path, "question,answers\nWho?,a\nWhere?,c\nWho?,b\n")
    assert [(question.question, question.answers) for question in questions] == [
        ("Who?", ("a",)),
        ("Where?", ("c",)),
    ]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        f"{tmp_path / 'q.csv'}:4"
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", '[{"question": "When?", "answer": 1969},\n {"question": "Who?"}]', [("1969",), ()]),
        ("a.json", '\ufeff[{"question": "When?", "answers": [1969, "in 1969"]}]', [("1969", "in 1969")]),
        ("a.jsonl", '{"question": "How hot?", "answers": 12.5}', [("12.5",)]),
        ("a.jsonl", '{"question": "Q?", "answers": {"text": ["a", "b"], "answer_start": [3, 5]}}', [("a", "b")]),
        ("a.jsonl", '{"question": "Q?", "answers": {"text": [], "answer_start": []}}', [()]),
        ("a.jsonl", '{"user_input": "Q?", "reference": "a", "response": "wrong"}', [("a",)]),
        ("a.jsonl", '{"question": "Q?", "answer": "wrong", "ground_truth": "a"}', [("a",)]),
        ("a.jsonl", '{"question": "Q?", "ground_truths": ["a", "b"]}', [("a", "b")]),
        ("a.csv", "question,ground_truth,answer\nQ?,a,wrong\n", [("a",)]),
        ("a.csv", "question,answers,reference\nQ?,a|b,wrong\n", [("a", "b")]),
        ("a.json", '[{"question": "Q?", "answers": [12.50, 1e3, 0.0]}]', [("12.50", "1e3", "0.0")]),
        ("a.jsonl", '{"question": "Q?", "answers": 1969.10}', [("1969.10",)]),
    ],
)  # fmt: skip
def test_questions_as_other_tools_write_them_are_read(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert [question.answers for question in read_questions(path)] == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('[{"question": "Q?"}, 7]', r"questions\[1\] must be an object, not"),
        ('[{"question": "Q?", "answers": [true]}]', r"questions\[0\].*answers\[0\]"),
        ('{"question": "Q?", "answers": true}', r":1.*answers"),
        ('{"question": "Q?", "gold": ["a", "b"]}', r":1.*gold"),
    ],
)
def test_what_is_no_question_in_them_is_named(tmp_path, content, place):
    path = tmp_path / "q.json"
    path.write_text(content)
    with pytest.raises(UserError, match=place):
        read_questions(path)


def test_columns_that_are_not_used_are_named(tmp_path, caplog):
    path = tmp_path / "q.csv"
    path.write_text("question,answers,level,remark\nQ?,a,3,none\nR?,b,4,\n")
    read_questions(path)
    assert [record.args[1] for record in caplog.records] == ["level, remark"]
