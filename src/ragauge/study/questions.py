"""The questions of a study, from JSON lines or from CSV as spreadsheets export it."""

import codecs
import csv
import dataclasses
import hashlib
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, meant
from ragauge.io.jsonl import JsonObject, distinct, field, objects, read_jsonl, strings
from ragauge.methods.prompts.templates import ends_sentence

TABLE_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".ndjson")
COLUMNS = ("question", "answers", "gold")
SQUAD = ("data", "paragraphs", "qas")  # its lists in lists, of which the last has questions
# names of other tools' columns; RAGAS' `answer` stands next to these, and is a system's
TRUTHS = "ground_truths?|reference"
ANSWER_SEPARATOR = "|"  # in a cell of a CSV file
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}  # of cells
ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyQuestion:
    """A question, its answer with aliases and the title of the document that holds it, both where
    known.
    """

    question: str
    answers: tuple[str, ...]
    gold: str | None = None
    id: str = dataclasses.field(default="", compare=False)  # that its file states

    @property
    def key(self) -> str:
        """Identify the question over runs and orders."""
        return hashlib.sha256(self.question.encode()).hexdigest()[:16]


def read_questions(path: Path) -> list[StudyQuestion]:
    """Read a file of questions; one that is there twice is used once.

    Raises:
        UserError: no such file, what may be misread, no questions.
    """
    name = path.name.lower()
    suffixes = TABLE_SUFFIXES + JSON_SUFFIXES
    if path.suffix and not name.endswith(suffixes):
        raise UserError(
            f"{path}: questions are read from files that end with {', '.join(suffixes)}"
        )
    questions: dict[str, StudyQuestion] = {}
    unused = {}
    for place, row in _table(path) if name.endswith(TABLE_SUFFIXES) else _lines(path):
        unused.update(dict.fromkeys(name for name in row if name and name not in COLUMNS))
        if isinstance(row.get("gold"), list) and len(row["gold"]) == 1:
            [row["gold"]] = row["gold"]
        gold = field(row, "gold", str, place) if row.get("gold") else None
        text = field(row, "question", str, place)
        question = StudyQuestion(text, _answers(row, place), gold, str(row.get("id", "")))
        if question.key in questions:
            logger.warning("%s: %r is there twice; the first is used", place, question.question)
        questions.setdefault(question.key, question)
    if not questions:
        raise UserError(f"{path}: no questions")
    if unused:
        logger.warning("%s: columns that are not used: %s", path, ", ".join(unused))
    return list(questions.values())


def _answers(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    answers = _plain(row.get("answers"))
    if isinstance(answers, list):
        answers = [*map(_plain, answers)]
    if isinstance(answers, str):
        if re.fullmatch(r"\s*\[.*\]\s*", answers, re.DOTALL):
            raise UserError(
                f"{place}: answers {answers!r}: write {ANSWER_SEPARATOR!r} between answers, no list"
            )
        answers = [answer.strip() for answer in answers.split(ANSWER_SEPARATOR) if answer.strip()]
    return strings({"answers": answers}, "answers", place) if answers else ()


def _plain(answer: Any) -> Any:
    """Return the text of an answer that has its place too, as in SQuAD, or is a number."""
    answer = answer.get("text", answer) if isinstance(answer, dict) else answer
    return str(answer) if type(answer) is int else answer


def _columns(names: Sequence[str], place: str) -> list[str]:
    """Spell the names of columns as a study does: in any case, `answer` as `answers`. Raises
    UserError: a column is there twice, or one is missing and another's name is like its name.
    """
    columns = [name.strip().casefold().replace("user_input", "question") for name in names]
    truths = "answers" not in columns and any(re.fullmatch(TRUTHS, name) for name in columns)
    answers = TRUTHS if truths else "answer"
    columns = [re.sub(f"^({answers})$", "answers", column) for column in columns]
    for wanted in COLUMNS:
        if columns.count(wanted) > 1:
            raise UserError(f"{place}: the column {wanted!r} is there twice")
        like = [
            name
            for name, column in zip(names, columns, strict=True)
            if column not in COLUMNS
            and (wanted.rstrip("s") in name.casefold() or meant(name, [wanted]))
        ]
        if like and wanted not in columns:
            raise UserError(f"{place}: unknown column {like[0]!r}; did you mean {wanted!r}?")
    return columns


def _lines(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the objects of JSON lines, of one array or of SQuAD's articles, with their places."""
    records: Iterable[tuple[Any, str]]
    records = ((record, f"{path}:{number}") for number, record in read_jsonl(path, parse_float=str))
    content = None
    try:
        once = partial(distinct, str(path))
        content = json.loads(path.read_bytes(), parse_float=str, object_pairs_hook=once)
    except UserError:
        raise
    except (OSError, ValueError, RecursionError):  # it is of JSON lines, or no JSON
        pass
    if type(content) is list:
        records = objects({"questions": content}, "questions", str(path))
    elif isinstance(content, dict) and "data" in content:
        records = [(content, str(path))]
        for name in SQUAD:
            records = [part for record, place in records for part in objects(record, name, place)]
    for record, place in records:
        yield place, dict(zip(_columns(list(record), place), record.values(), strict=True))


def _table(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the rows of a table with their places, values without white space around; blank rows
    are skipped.
    """
    lines = list(io.StringIO(_text(path), newline=""))
    first = next(
        (number for number, line in enumerate(lines, start=1) if line.strip(" ,;\t\r\n")), 0
    )
    if not first:
        return
    separator, columns = _header(lines[first - 1], f"{path}:{first}")
    reader = csv.reader(lines[first:], delimiter=separator, skipinitialspace=True, strict=True)
    stop = first
    try:
        for cells in reader:
            place = f"{path}:{stop + 1}"
            end = first + reader.line_num
            row = "".join(lines[stop:end])
            if any(map(str.strip, cells)):
                _check(cells, columns, separator, row, lines[first - 1], place)
                yield place, dict(zip(columns, map(str.strip, cells), strict=False))
            stop = end
    except csv.Error as error:
        raise UserError(
            f"{path}:{stop + 1}: {error}; a quote inside quotes is written twice"
        ) from None


def _text(path: Path) -> str:
    """Decode a table in UTF-8, or in UTF-16 with a byte order mark; other encodings are not
    guessed.
    """
    try:
        content = path.read_bytes()
        text = content.decode(
            next((ENCODINGS[mark] for mark in ENCODINGS if content.startswith(mark)), "utf-8")
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(
            f"{path}: neither UTF-8 nor UTF-16 with a byte order mark; save it as CSV UTF-8, or "
            f"convert it, as in: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf-8.csv"
        )
    if '\\"' in text:
        raise UserError(
            f"{path}: a backslash before a quote; a quote inside quotes is written twice"
        )
    return text


def _header(line: str, place: str) -> tuple[str, list[str]]:
    """Return the separator by which a first line has a column `question`, and its columns."""
    splits = {
        mark: next(csv.reader([line], delimiter=mark, skipinitialspace=True)) for mark in SEPARATORS
    }
    folded = {mark: [name.strip().casefold() for name in names] for mark, names in splits.items()}
    separator = max(folded, key=lambda mark: ("question" in folded[mark], len(folded[mark])))
    columns = _columns(splits[separator], place)
    if "question" not in columns:
        raise UserError(
            f"{place}: no column 'question'; the first line, cut at every {SEPARATORS[separator]}, "
            f"has {', '.join(map(repr, splits[separator]))}"
        )
    return separator, columns


def _check(
    cells: Sequence[str], columns: Sequence[str], separator: str, row: str, header: str, place: str
) -> None:
    """Raise UserError if a row has more cells than columns, or its question may have been cut. It
    may where it has neither quotes nor a mark at its end, and cells are missing, a question mark
    follows, or a blank stands after the separator, where the header has none.
    """
    at = columns.index("question")
    question, following, *_ = [*cells[at : at + 2], "", ""]
    is_spaced = (
        separator != "\t" and f"{question}{separator} " in row and f"{separator} " not in header
    )
    doubtful = is_spaced or len(cells) < len(columns) or following.rstrip().endswith(("?", "？"))
    is_whole = ends_sentence(question) or '"{}"'.format(question.replace('"', '""')) in row
    unnamed = [cell for cell, column in zip(cells[1:], columns[1:], strict=False) if not column]
    is_beyond = len(cells) > len(columns) or any(map(str.strip, unnamed))
    if is_beyond or (doubtful and question and not is_whole):
        name = SEPARATORS[separator]
        raise UserError(
            f"{place}: {len(cells)} cells in {len(columns)} columns, cut at every {name}, the first"
            f" is {cells[0]!r}; a cell that holds a {name} or a line end needs quotes"
        )
