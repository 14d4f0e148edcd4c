"""The pages of a PDF as text: tables as rows, columns one after another, without running heads and
page numbers.

pypdf reads a page in the order in which it was drawn, with good words, and also says where on the
page they stand. Pages with a gap that runs down several lines, a gutter between columns or cells,
are taken from the latter.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

MOST_UNREADABLE = 0.1  # part of a page's characters that are no letters of any script
# letters; part of a page's letters in longer words, above which blanks are missing
LONG_WORD = 25
MOST_LONG = 0.1
# characters of a page that shows an image, or is among pages of so many, that are too few
FEW = 20
MANY = 400
# lines at the top, and at the bottom, that may be running ones; their characters
EDGE = 3
LONGEST_RUNNING = 120
# part of the pages that repeat a line; pages that repeat it with a number that counts them
REPEATED = 0.45
COUNTED = 3
ALIKE = 0.95  # part of the letters, and of the words, that both ways of reading must have in common
COLUMN_LINES, COLUMN_WIDTH = 2, 20  # from which cells side by side are columns of prose; characters
GAP = 1.0
BLANK = 0.15
NEW_BLOCK = 1.7  # font heights: between segments, between words, from a line to the next block
GUTTER = 3.0  # points, at least
COLUMNS = "columns or cells that may be mixed up"
PROBLEMS = ("no text", "almost no text", "garbled text", "words run together", COLUMNS)  # of a page

_RUN = re.compile(r"\S+(?: {1,3}\S+)*")
_MARK = re.compile(r"[•▪◦‣·●○■–*-]|\(?(?:\d{1,3}|[a-z])[.)]")  # of a list's item
_HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010][ \t]*\n[ \t]*(?=[a-zß-ÿ])")
_PAGE_NUMBER = re.compile(
    r"\W*(page|seite|página|p\.)\s*\d+(\s*(of|von|de|/)\s*\d+)?\W*", re.IGNORECASE
)


class Segment(NamedTuple):
    """A part of a line between two gaps."""

    start: float  # points from the left, as `stop`
    stop: float
    text: str


Line = list[Segment]  # without any it is the blank between two blocks
Gap = tuple[float, float]
Page = tuple[str, set[str]]  # its text, and which of `PROBLEMS` it has


def read(pages: Sequence[Any]) -> list[Page]:
    drawn = [page.extract_text().split("\n") for page in pages]
    placed = [_placed(page) for page in pages]
    has_many = sum(len(line) for lines in drawn for line in lines) >= MANY * len(drawn)
    running = running_lines(drawn)
    placed_running = running_lines(
        [[" ".join(part.text for part in line) for line in lines or ()] for lines in placed]
    )
    made = []
    for i, page in enumerate(pages):
        text = paragraphs(
            "\n".join(line for place, line in enumerate(drawn[i]) if place not in running[i])
        )
        lines = [
            line for place, line in enumerate(placed[i] or ()) if place not in placed_running[i]
        ]
        least = FEW if has_many or _has_image(page) else 0
        made.append(_read(text, None if placed[i] is None else lines, least))
    return made


def warnings(pages: Sequence[Page]) -> Iterator[str]:
    """Say how many pages are read badly, for each of `PROBLEMS`."""
    for problem in PROBLEMS:
        if bad := [
            number for number, (_, problems) in enumerate(pages, start=1) if problem in problems
        ]:
            yield f"{len(bad)} of {len(pages)} pages hold {problem}, the first is page {bad[0]}"


def _read(text: str, placed: list[Line] | None, least: int) -> Page:
    laid_out, has_gutter = lay_out(placed or [])
    is_alike = _are_alike(text, " ".join(segment.text for line in placed or () for segment in line))
    if (has_gutter or _are_run_together(text)) and is_alike:
        text = laid_out
    problems = {
        "no text": not text,
        "almost no text": 0 < len(text) < least,
        "garbled text": _is_garbled(text),
        "words run together": _are_run_together(text),
        COLUMNS: placed is None or (has_gutter and not is_alike),
    }
    return text, {problem for problem, has_problem in problems.items() if has_problem}


def paragraphs(text: str) -> str:
    """Join the lines of a page to paragraphs, which blank lines part, and words that a line's end
    hyphenates.
    """
    parts = (_HYPHENATED.sub("", part) for part in re.split(r"\n[ \t]*\n", text))
    return "\n\n".join(" ".join(part.split()) for part in parts if part.strip())


def _placed(page: Any) -> list[Line] | None:
    """The lines of a page, from the top; None where pypdf, whose private parts these are, cannot
    place them.
    """
    try:
        from pypdf._text_extraction import _layout_mode as layout
        from pypdf.generic import ContentStream

        operations = iter(
            ContentStream(page["/Contents"].get_object(), page.pdf, "bytes").operations
        )
        groups = layout.text_show_operations(operations, page._layout_mode_fonts())
        by_height = layout.y_coordinate_groups(groups) if groups else {}
    except Exception:  # fonts and matrices fail in any way that the other way of reading gets past
        return [] if "/Contents" not in page else None
    lines = list[Line]()
    above = None
    for y, line in by_height.items():
        height = max(group["font_height"] for group in line)
        lines += [[]] if above is not None and abs(above - y) > NEW_BLOCK * height else []
        lines.append(_segments(line, height))
        above = y
    return lines


def _segments(groups: Sequence[Any], height: float) -> Line:
    """Join what is drawn on a line up to its gaps; a list item's mark belongs to its text."""
    made: Line = []
    for group in groups:
        width = (group["displaced_tx"] - group["tx"]) / max(1, len(group["text"]))
        for run in _RUN.finditer(group["text"]):
            start, stop = (group["tx"] + width * at for at in run.span())
            gap = start - made[-1].stop if made else 0.0
            if made and (gap < GAP * height or _MARK.fullmatch(made[-1].text)):
                first = made.pop()
                made.append(
                    Segment(
                        first.start, stop, f"{first.text}{' ' * (gap > BLANK * height)}{run[0]}"
                    )
                )
            else:
                made.append(Segment(start, stop, run[0]))
    return [segment._replace(text=" ".join(segment.text.split())) for segment in made]


def lay_out(lines: Sequence[Line]) -> tuple[str, bool]:
    """Read placed lines: (the text, whether there is any gutter)."""
    blocks = list[str]()
    prose = list[str]()
    first = 0
    while first < len(lines):
        gutters, last_row, last = _gutters(lines[first:])
        cells = [_cells(line, gutters) for line in lines[first : first + last]]
        filled = [sum(map(bool, row)) for row in cells]
        if sum(count > 1 for count in filled) < max(2, 0.5 * sum(map(bool, filled[:last_row]))):
            prose.append(" ".join(cells[0]))
            first += 1
            continue
        blocks = [*blocks, paragraphs("\n".join(prose))]
        prose = []
        has_blanks = filled.count(0) > 1  # from side to side, as between the rows of a table
        if not has_blanks and _are_columns(cells):
            blocks += [paragraphs("\n".join(column)) for column in zip(*cells, strict=True)]
            first += last
        else:  # and the lines below that only go on with its last cells
            rows = next(
                (n for n in range(last_row, last) if cells[n][0] or not any(cells[n])), last
            )
            blocks.append(_table(cells[:rows], has_blanks))
            first += rows
    return "\n\n".join(filter(None, [*blocks, paragraphs("\n".join(prose))])), bool(blocks)


def _gutters(lines: Sequence[Line]) -> tuple[list[Gap], int, int]:
    """Follow the gaps of the first line down the page, as long as one stays open. Returns the
    gutters; how many lines it is to the last with text on both sides of one, and to the last that
    crosses none.
    """
    gutters = [(left.stop, right.start) for left, right in pairwise(lines[0])]
    last_row = 1
    last = 1
    for number, line in enumerate(lines[1:], start=2):
        left_open = [gap for gutter in gutters for gap in _left_open(gutter, line)]
        is_row = sum(map(bool, _cells(line, left_open))) > 1
        if (
            not left_open
            or (len(line) == 1 and len(left_open) < len(gutters))
            or (len(line) > 1 and not is_row)
        ):
            break
        gutters = left_open
        last = number if line else last
        last_row = number if is_row else last_row
    return gutters, last_row, last


def _left_open(gutter: Gap, line: Line) -> Iterator[Gap]:
    """The part of a gutter that a line's segments leave open, if it is wide enough."""
    start, stop = gutter
    for left, right, _ in line:
        if left < stop and right > start:
            start, stop = max(((start, left), (right, stop)), key=lambda part: part[1] - part[0])
    if stop - start >= GUTTER:
        yield start, stop


def _cells(line: Line, gutters: Sequence[Gap]) -> list[str]:
    cells = [""] * (len(gutters) + 1)
    for segment in line:
        place = sum(segment.start >= stop for _, stop in gutters)
        cells[place] = f"{cells[place]} {segment.text}".strip()
    return cells


def _are_columns(cells: Sequence[Sequence[str]]) -> bool:
    """Whether cells side by side are lines of prose: wide, and a third of them goes on in the
    middle of a sentence.
    """
    columns = [list(filter(None, column)) for column in zip(*cells, strict=True)]
    going_on = [
        sum(line[0].isalpha() and not line[0].isupper() for line in lines[1:]) for lines in columns
    ]
    are_wide = all(sum(map(len, lines)) >= COLUMN_WIDTH * len(lines) for lines in columns)
    go_on = all(3 * count >= len(lines) - 1 for count, lines in zip(going_on, columns, strict=True))
    return sum(map(all, cells)) >= COLUMN_LINES and are_wide and go_on


def _table(cells: Sequence[list[str]], has_blanks: bool) -> str:
    """Write rows; a line that only goes on with cells of the line before it is joined to that."""
    rows = list[list[str]]()
    is_fresh = True
    for line in cells:
        filled = list(filter(None, line))
        goes_on = all(cell[0].islower() for cell in filled) or (len(filled) == 1 and not line[0])
        if rows and filled and goes_on and not is_fresh and (has_blanks or len(filled) < len(line)):
            rows[-1] = [
                f"{above} {below}".strip() for above, below in zip(rows[-1], line, strict=True)
            ]
        elif filled:
            rows.append(line)
        is_fresh = not filled
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def running_lines(pages: Sequence[Sequence[str]]) -> list[set[int]]:
    """The places of lines at the edges of pages that most pages repeat, or some but for a number
    that counts pages.
    """
    made: list[set[int]] = [set() for _ in pages]
    for step in (1, -1):
        edges = [
            [place for place, line in enumerate(lines) if line.strip()][::step][:EDGE]
            for lines in pages
        ]
        keys = [
            {place: {*_keys(lines[place], page)} for place in edge}
            for page, (lines, edge) in enumerate(zip(pages, edges, strict=True), start=1)
        ]
        counts = Counter(key for of_page in keys for key in set[str]().union(*of_page.values()))
        least = {
            key: max(2, min(COUNTED, len(pages)) if "\0" in key else REPEATED * len(pages))
            for key in counts
        }
        for lines, of_page, places in zip(pages, keys, made, strict=True):
            for place, own in of_page.items():
                if not (
                    any(counts[key] >= least[key] for key in own)
                    or _PAGE_NUMBER.fullmatch(lines[place])
                ):
                    break
                places.add(place)
    return made


def _keys(line: str, page: int) -> Iterator[str]:
    """What a running line has in common with others: all of it, or all but one number that counts
    pages.
    """
    text = " ".join(line.split())
    if len(text) <= LONGEST_RUNNING:
        yield text
        for number in re.finditer(r"[0-9]{1,6}", text):
            yield f"{text[: number.start()]}\0{int(number[0]) - page}\0{text[number.end() :]}"


def _are_alike(drawn: str, placed: str) -> bool:
    """Whether the placed text has the letters of the drawn one, and nearly as many words."""
    words, placed_words = (re.findall(r"\w+", text) for text in (drawn, placed))
    letters, placed_letters = (sum(map(len, each)) for each in (words, placed_words))
    return placed_letters >= ALIKE * letters and len(placed_words) >= ALIKE * len(words)


def _are_run_together(text: str) -> bool:
    """Whether many letters are in words that are too long, as where a font has no blanks; not in
    unspaced scripts.
    """
    lengths = [len(word) for word in re.findall(r"[^\W\d_]+", text) if word[0] < "\u0e00"]
    return sum(length for length in lengths if length > LONG_WORD) > MOST_LONG * sum(lengths)


def _is_garbled(text: str) -> bool:
    """Whether a page's font does not say which letters it shows: replacement, private and control
    characters.
    """
    text = text.replace("\n", "")
    unreadable = sum(
        char == "\ufffd" or unicodedata.category(char) in ("Co", "Cn", "Cc") for char in text
    )
    return unreadable > MOST_UNREADABLE * len(text)


def _has_image(page: Any) -> bool:
    try:
        objects = page["/Resources"]["/XObject"]
        return any(objects[name].get("/Subtype") == "/Image" for name in objects)
    except (KeyError, TypeError, AttributeError):
        return False
