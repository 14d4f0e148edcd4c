"""The pages of a PDF as text: tables as rows, columns one after another, filled fields at the end.

pypdf's layout mode writes a page with the blanks that keep its columns apart. A gap that runs down
several lines is a gutter: between cells of a table, or between columns of prose.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

MAX_UNREADABLE = 0.1  # part of a page's characters that are no letters of any script
# letters; part of a page's letters in longer words, above which blanks are missing
LONG_WORD = 25
MAX_LONG = 0.1
# characters that are too few on a page with an image, or among pages of so many
MIN_CHARACTERS = 20
FULL_PAGE = 400
EDGE_LINES = 3  # at the top, and at the bottom of a page, that may be running ones
# part of the pages that repeat a running line, and their number
REPEATED = 0.45
MIN_PAGES = 3
MIN_WORDS = 0.95  # part of the words of pypdf's plain mode that its layout mode must have
COLUMN_CHARACTERS = 20  # of a line, from which cells side by side are columns of prose
# a text that is smaller than the one before it, by this factor at least, and whose line is higher
# or lower by such parts of that one's size, is raised or lowered
SMALLER = 0.9
SHIFT = (0.1, 0.7)
RAISED = "raised or lowered texts, which stand there as others"
ANNOTATIONS = {  # that are not read
    "/Text": "comments",
    "/FileAttachment": "attached files",
    "/StrikeOut": "passages struck out, which are read",
}

_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
_MARK = re.compile(r"(?<!\S)([•▪◦‣·●○■–*-]|\(?(?:\d{1,3}|[a-z])[.)]) {3,}(?=\S)")  # of a list
_HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010][ \t]*\n[ \t]*(?=[a-zß-ÿ])")
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:page|seite|página|p\.)\s*)?(?P<number>\d{1,6})(?:\s*(?:of|von|de|/)\s*\d+)?\W*",
    re.IGNORECASE,
)


class Page(NamedTuple):
    text: str
    problems: dict[str, bool]  # every problem that pages can have -> whether this one has it
    running: set[str]  # lines that were left out
    unread: Counter[str]  # what is not read of it, by kind


Gap = tuple[int, int]  # columns


def read(pages: Sequence[Any]) -> list[Page]:
    """Read the pages of pypdf in their order."""
    shifts = [_Shifts() for _ in pages]
    plain = [
        page.extract_text(visitor_operand_before=shifted.see)
        for page, shifted in zip(pages, shifts, strict=True)
    ]
    placed = [_layout_lines(page) for page in pages]
    is_full = sum(map(len, plain)) >= FULL_PAGE * len(pages)
    read = []
    for page, shifted, drawn, lines, numbers in zip(
        pages, shifts, plain, placed, running_lines(placed), strict=True
    ):
        running = {" ".join(lines[number].split()) for number in numbers}
        laid_out, has_gutter = lay_out([line for n, line in enumerate(lines) if n not in numbers])
        is_placed = _word_count(" ".join(lines)) >= MIN_WORDS * _word_count(drawn)
        if not is_placed:
            texts = [text for text in drawn.split("\n") if " ".join(text.split()) not in running]
            laid_out = paragraphs("\n".join(texts))
        text = "\n\n".join(filter(None, [laid_out, *_fields(page)]))
        problems = {
            "no text": not text,
            "almost no text": 0 < len(text) < MIN_CHARACTERS and (is_full or _has_image(page)),
            "garbled text": _is_garbled(text),
            "words run together": _are_run_together(text),
            "columns or cells that may be mixed up": has_gutter and not is_placed,
        }
        annotations = (str(annotation.get("/Subtype")) for annotation in _annotations(page))
        kinds = (ANNOTATIONS[kind] for kind in annotations if kind in ANNOTATIONS)
        unread = Counter({RAISED: shifted.count}) + Counter(kinds)
        read.append(Page(text, problems, running, unread))
    return read


class _Shifts:
    """Counts the texts of a page that are raised or lowered, as exponents are."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0.0
        self.rise = 0.0
        self.last_size = 0.0
        self.last_y = 0.0

    def see(
        self, operator: bytes, operands: Sequence[Any], page: Sequence[float], text: Sequence[float]
    ) -> None:
        """Take an operator of the page's content, with the matrices of the page and of its text."""
        if operator == b"Tf":
            self.size = float(operands[1])
        elif operator == b"Ts":
            self.rise = float(operands[0])
        elif operator in (b"Tj", b"TJ"):
            size = self.size * abs(text[3])
            y = text[5] + self.rise * text[3]
            low, high = (part * self.last_size for part in SHIFT)
            is_shifted = low < abs(y - self.last_y) < high
            if is_shifted and (self.rise or size <= SMALLER * self.last_size):
                self.count += 1
            else:
                self.last_size = size
                self.last_y = y


def unread_parts(reader: Any) -> Counter[str]:
    """Count what a document holds besides its pages and is not read, by kind."""
    root = reader.trailer["/Root"]
    hidden = root.get("/OCProperties", {}).get("/D", {}).get("/OFF", ())
    has_xfa = "/XFA" in root.get("/AcroForm", {})
    counts = {
        "attached files": len(reader.attachments),
        "hidden layers, which are read": len(hidden),
        "forms in XFA": int(has_xfa),
    }
    return +Counter(counts)


def warnings(pages: Sequence[Page]) -> Iterator[str]:
    """Say how many pages, of one at least, are read badly, for each problem."""
    for problem in pages[0].problems:
        bad = [number for number, page in enumerate(pages, start=1) if page.problems[problem]]
        if bad:
            yield f"{len(bad)} of {len(pages)} pages hold {problem}, the first is page {bad[0]}"


def _layout_lines(page: Any) -> list[str]:
    """The lines of a page in pypdf's layout mode; none where it cannot place them."""
    try:
        text = page.extract_text(extraction_mode="layout")
    except Exception:  # fonts and matrices fail in any way that the plain mode gets past
        return []
    return [_MARK.sub(r"\1 ", line) for line in text.split("\n")]


def _fields(page: Any) -> Iterator[str]:
    """Yield the filled fields of a form with their names, and the text boxes of a page."""
    for annotation in _annotations(page):
        field = {**annotation.get("/Parent", {}), **annotation}
        value = field.get("/V", "")
        values = value if isinstance(value, list) else [value]
        texts = [text for text in values if isinstance(text, str) and text not in ("", "/Off")]
        if annotation.get("/Subtype") == "/FreeText":
            yield str(annotation.get("/Contents", ""))
        elif texts:
            yield f"{field.get('/TU') or field.get('/T', '')}: {', '.join(texts).removeprefix('/')}"


def _annotations(page: Any) -> Iterator[Any]:
    return (reference.get_object() for reference in page.get("/Annots") or ())


def paragraphs(text: str) -> str:
    """Join the lines of a page to paragraphs, which blank lines part, and words that a line's end
    hyphenates.
    """
    parts = (_HYPHENATED.sub("", part) for part in re.split(r"\n[ \t]*\n", text))
    return "\n\n".join(" ".join(part.split()) for part in parts if part.strip())


def lay_out(lines: Sequence[str]) -> tuple[str, bool]:
    """Read lines with gaps: (the text, whether a gutter runs down some of them)."""
    blocks = []
    prose = []
    first = 0
    while first < len(lines):
        cells, last_row = _rows(lines[first:])
        filled = [sum(map(bool, row)) for row in cells]
        if sum(count > 1 for count in filled) < max(2, 0.5 * sum(map(bool, filled[:last_row]))):
            prose.append(lines[first])
            first += 1
            continue
        blocks.append(paragraphs("\n".join(prose)))
        prose = []
        has_blanks = filled.count(0) > 1  # from side to side, as between the rows of a table
        if not has_blanks and _are_columns(cells):
            blocks += [paragraphs("\n".join(column)) for column in zip(*cells, strict=True)]
            first += len(cells)
        else:  # and the lines below that only go on with its last cells
            below = takewhile(lambda row: any(row) and not row[0], cells[last_row:])
            rows = cells[: last_row + len(list(below))]
            blocks.append(_table(rows, has_blanks))
            first += len(rows)
    return "\n\n".join(filter(None, [*blocks, paragraphs("\n".join(prose))])), bool(blocks)


def _rows(lines: Sequence[str]) -> tuple[list[list[str]], int]:
    """Follow the gaps of the first line down the page, as long as one stays open.

    Returns: the cells of each line that crosses none of them, and the number of lines to the last
    one with text on both sides of a gap.
    """
    gutters = [match.span() for match in _GAP.finditer(lines[0])]
    last_row = 1
    last = 1
    for number, line in enumerate(lines[1:], start=2):
        left_open = [gap for gutter in gutters for gap in _left_open(gutter, line)]
        is_row = sum(map(bool, _cells(line, left_open))) > 1
        has_gap = _GAP.search(line)
        if not left_open or (has_gap and not is_row):
            break
        if line.strip() and not has_gap and len(left_open) < len(gutters):
            break
        gutters = left_open
        last = number if line.strip() else last
        last_row = number if is_row else last_row
    return [_cells(line, gutters) for line in lines[:last]], last_row


def _left_open(gutter: Gap, line: str) -> Iterator[Gap]:
    """The widest part of a gutter that a line leaves open."""
    start, stop = gutter
    gaps = list(re.finditer(" {2,}", line[start:stop].ljust(stop - start)))
    if gaps:
        widest = max(gaps, key=lambda gap: gap.end() - gap.start())
        yield start + widest.start(), start + widest.end()


def _cells(line: str, gutters: Sequence[Gap]) -> list[str]:
    bounds = [0, *(stop for _, stop in gutters), len(line)]
    return [" ".join(line[start:stop].split()) for start, stop in pairwise(bounds)]


def _are_columns(cells: Sequence[Sequence[str]]) -> bool:
    """Whether cells side by side are lines of prose: wide, and a third of them goes on in the
    middle of a sentence.
    """
    for column in zip(*cells, strict=True):
        lines = list(filter(None, column))
        going_on = sum(line[0].isalpha() and not line[0].isupper() for line in lines[1:])
        is_wide = sum(map(len, lines)) >= COLUMN_CHARACTERS * len(lines)
        if not is_wide or 3 * going_on < len(lines) - 1:
            return False
    return True


def _table(cells: Sequence[list[str]], has_blanks: bool) -> str:
    """Write rows; a line that only goes on with cells of the line before it is joined to that."""
    rows = list[list[str]]()
    is_fresh = True
    for line in cells:
        filled = list(filter(None, line))
        goes_on = all(cell[0].islower() for cell in filled) or (len(filled) == 1 and not line[0])
        if rows and filled and goes_on and not is_fresh and (has_blanks or len(filled) < len(line)):
            joined = zip(rows[-1], line, strict=True)
            rows[-1] = [f"{above} {below}".strip() for above, below in joined]
        elif filled:
            rows.append(line)
        is_fresh = not filled
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def running_lines(pages: Sequence[Sequence[str]]) -> list[set[int]]:
    """Find the lines at the edges of pages that many pages repeat, and those with page numbers.

    A number counts only where it stands alone, or apart from a repeated text, and goes up with the
    pages: `Machine 3` above the third machine is a heading.
    """
    edges = []
    for page, lines in enumerate(pages):
        keys = [(n, _running_key(line, page)) for n, line in enumerate(lines) if line.strip()]
        edges.append((keys[:EDGE_LINES], keys[: -EDGE_LINES - 1 : -1]))
    counts = Counter(key for top, bottom in edges for key in {key for _, key in top + bottom})

    def is_running(line: tuple[int, tuple[str, int | None]]) -> bool:
        share = REPEATED if line[1][1] is None else 0.0
        return counts[line[1]] >= max(MIN_PAGES, share * len(pages))

    return [{n for edge in page for n, _ in takewhile(is_running, edge)} for page in edges]


def _running_key(line: str, page: int) -> tuple[str, int | None]:
    """Return what a running line shares with others: its text, and its number less the page's."""
    parts = _GAP.split(line.strip())
    numbers = [match for match in map(_PAGE_NUMBER.fullmatch, parts) if match]
    text = " ".join(part for part in parts if not _PAGE_NUMBER.fullmatch(part))
    return text, int(numbers[0]["number"]) - page if numbers else None


def _word_count(text: str) -> int:
    return len(re.findall(r"\w+", text))


def _are_run_together(text: str) -> bool:
    """Whether many letters are in words that are too long, as where a font has no blanks; not in
    unspaced scripts.
    """
    lengths = [len(word) for word in re.findall(r"[^\W\d_]+", text) if word[0] < "\u0e00"]
    return sum(length for length in lengths if length > LONG_WORD) > MAX_LONG * sum(lengths)


def _is_garbled(text: str) -> bool:
    """Whether a page's font does not say which letters it shows: replacement, private and control
    characters.
    """
    kinds = Counter(unicodedata.category(char) for char in text if char != "\n")
    unreadable = text.count("\ufffd") + kinds["Co"] + kinds["Cn"] + kinds["Cc"]
    return unreadable > MAX_UNREADABLE * kinds.total()


def _has_image(page: Any) -> bool:
    try:
        objects = page["/Resources"]["/XObject"]
        return any(objects[name].get("/Subtype") == "/Image" for name in objects)
    except (KeyError, TypeError, AttributeError):
        return False
