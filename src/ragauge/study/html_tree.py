"""HTML as one tree, repaired once, and as text with the marks of Markdown.

Pages, and Word documents that were made HTML, are read by these rules alone. Blocks are parted by
blank lines, so that none runs into the next sentence; a table is one block, a row a line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ragauge.study.numerals import numeral
from ragauge.study.stylesheets import GAP, INDENT, UNKNOWN, stylesheet

Element = Any  # of lxml

HEADINGS = {f"h{level}": level for level in range(1, 7)}
LISTS = ("ul", "ol", "menu")
CELLS = ("td", "th")
BLOCKS = frozenset((
    *HEADINGS, *LISTS, *CELLS, "li", "table", "thead", "tbody", "tfoot", "tr", "caption", "dl", "dt", "dd", "p", "pre",
    "blockquote", "div", "section", "article", "main", "body", "html", "form", "fieldset", "legend", "details",
    "figure", "figcaption", "aside", "address", "hgroup", "header", "footer", "nav", "hr",
))  # fmt: skip
INVISIBLE = (
    "head", "script", "style", "noscript", "noframes", "template", "svg", "rp", "annotation",
)  # fmt: skip
LEFT_OUT = {  # elements that are hidden, deleted or second forms of what is read
    "hidden text": "//*[contains(@style, ';display:none') and not(contains(@class, 'mwe-math'))"
    " or @hidden and not(contains(@style, ';display:')) or contains(concat(@style, ';'), ';opacity:0;')"
    " or contains(concat(@style, ';'), ';font-size:0;') or self::dialog and not(@open)]",
    "deleted text": "//del | //s | //strike | //*[contains(@style, 'line-through')]",
    "readings of characters": "//ruby//rt",
    "drawings of formulas": "//*[@class='katex-html']",
    "second marks of notes": "//*[@class='ltx_note_content']/*[contains(@class, 'mark') or contains(@class, 'tag')]",
}
_UNSEEN = "contains(@style, ';visibility:hidden') or contains(@style, ';visibility:collapse')"
UNSEEN = f"/descendant::text()[ancestor::*[contains(@style, ';visibility:')][1][{_UNSEEN}]]"
# links to notes that no <sup> is around or in
NOTE_LINK = (
    "//a[(@role='doc-noteref' or contains(@*[name()='epub:type'], 'noteref'))"
    " and not(.//sup or ancestor::sup)]"
)
RAISED = (
    "//*[contains(@style, ';vertical-align:')"
    " or contains(@style, ';position:relative') and contains(@style, ';top:-')]"
)
ALIGNED = re.compile(r";vertical-align:(?:(sub|-[\d.]*[1-9])|super|[\d.]*[1-9])|;top:-")
SHEET = (  # of what looks the same without a style sheet
    "sup, .superscript{vertical-align:super} sub, .subscript{vertical-align:sub}"
    " .ltx_note_content{display:block}"
)
# of style sheets: comments and what holds under conditions, as in print; selectors of tags and
# classes alone; the properties that decide what is read; and any property of a style
CONDITIONAL = re.compile(
    r"/\*.*?\*/|<!--|-->|@[^@{};]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL
)
SELECTOR = re.compile(r"(?:^|,)\s*(?=[\w.])(\w*)((?:\.[\w-]+)*)\s*(?=,|$)")
DECIDING = re.compile(
    r"(?<![\w-])(?:vertical-align\s*:\s*su[bp]|display|visibility|text-decoration|list-style)[^;]*",
    re.IGNORECASE,
)
PROPERTY = re.compile(r"([\w-]+):([^;]*)")
INPUTS = (
    "//input[ancestor::p or ancestor::li or ancestor::td][not(@type)"
    " or contains(' checkbox radio text number date ', concat(' ', @type, ' '))]"
)
# around raised and lowered text: code points that are nobody's
UP, DOWN, END = "\U0010fff1\U0010fff2\U0010fff3"
MARKED = re.compile(f"([{UP}{DOWN}])([^{UP}{DOWN}{END}]*){END}")
HALF = re.compile(rf"[{END}]*\s*[/\u2044]\s*{DOWN}\d")  # the rest of a fraction
# where raised text belongs to what follows, as in (14)C
OPENING = re.compile(r"(?:^|(?<!\d)\s|[(\[{/\u2044\u2013\u2014+=<>\u00d7\u00b7|\u201c-])$")
# raised letters of words, which are no exponents
OF_WORDS = re.compile(
    r"st|nd|rd|th|er|re|\u00e8re|e?me|\u00e8me|lle|tm|sm|[\u00ae\u2122\u00b0\u00ba]", re.I
)
SIMPLE = re.compile(r"[+\u2212\u2013-]?\d[\d.,]*|[^\W\d_]*|.|\(.*\)")  # needs no parentheses
# addresses of notes, if they do not end with the note's mark
NOTE = re.compile(r"#(.*[-_.:])?((foot|end)?notes?|n|fn|ftn|edn|refs?|cite?|bib)(?![a-z])", re.I)
BREAK = "\v"  # a line's end that is meant


def repair(tree: Element) -> Counter[str]:
    """Drop what a reader does not see; write formulas, and marks around raised text, in place.

    Returns: the characters that were dropped or are not understood, by kind.
    """
    left_out = Counter[str]()
    _apply_style_sheets(tree)
    for element in tree.xpath("//*[@style]"):
        style = re.sub(r"/\*.*?\*/|\s", "", element.get("style").lower())
        last = dict(PROPERTY.findall(style))
        style = "".join(f";{name}:{value}" for name, value in last.items())
        element.set("style", style)
        if element.tag == "span" and ";display:block" in style:
            element.tag = "div"
    for element in tree.xpath(INPUTS):
        box = "[ ] " if element.get("checked") is None else "[x] "
        is_box = element.get("type") in ("checkbox", "radio")
        element.text = box if is_box else element.get("value")
        element.tag = "span"
    for kind, path in LEFT_OUT.items():
        for element in reversed(tree.xpath(path)):  # the innermost first
            if element.getparent() is not None and element.tag != "body":
                left_out[kind] += text_size(element)
                element.drop_tree()
    drawn = "".join(tree.xpath("//svg//text//text()"))
    left_out["text of drawings"] += len("".join(drawn.split()))
    for text in tree.xpath(UNSEEN):
        left_out["hidden text"] += len("".join(text.split()))
        setattr(text.getparent(), "tail" if text.is_tail else "text", " ")
    for element in tree.xpath("//*[contains(name(), ':math')]/descendant-or-self::*"):
        element.tag = element.tag.split(":")[-1]
    for element in tree.iter("math"):
        text = f" {stylesheet('formulas.xsl')(element)}{GAP}"
        element[:] = []
        element.text = text
    for link in tree.xpath(NOTE_LINK):
        link.set("style", ";vertical-align:super")
    left_out["formulas of unknown form"] += tree.text_content().count(UNKNOWN)
    for element in tree.xpath(RAISED):
        aligned = ALIGNED.search(element.get("style"))
        if aligned:
            _mark(element, is_low=bool(aligned[1]))
    return +left_out


def _apply_style_sheets(tree: Element) -> None:
    """Write what style sheets say of tags and classes into styles, before what stands there."""
    sheets = SHEET + "".join(element.text or "" for element in tree.iter("style"))
    for rule in reversed(CONDITIONAL.sub("", sheets).split("}")):
        selectors, _, body = rule.rpartition("{")
        style = ";".join(DECIDING.findall(body))
        for tag, classes in SELECTOR.findall(selectors if style else ""):
            path = re.sub(r"\.([\w-]+)", r"[contains(concat(' ', @class, ' '), ' \1 ')]", classes)
            for element in tree.xpath(f"//{tag or '*'}{path}"):
                element.set("style", f"{style};{element.get('style', '')}")


def _mark(element: Element, is_low: bool) -> None:
    """Put marks around a raised or lowered text, or brackets, if it links to a note."""
    text = element.text_content().strip()
    around = (link for link in element.iterancestors("a") if link.text_content().strip() == text)
    places = [link.get("href", "") for link in (*around, *element.iter("a"))]
    is_note = text[:1] not in "[(" and any(
        NOTE.search(place) or ("#" in place and place.endswith(text)) for place in places
    )
    before, behind = "[]" if is_note else ((DOWN if is_low else UP), END)
    element.text = before + (element.text or "")
    end = element.makeelement("span")
    end.text = behind
    element.append(end)


def _signed(text: str) -> str:
    """Write signs in place of marks, so that no raised text is read as part of a number."""
    while MARKED.search(text):
        text = MARKED.sub(_sign, text)
    text = re.sub(f"[{UP}{DOWN}{END}{UNKNOWN}]", "", text)
    text = re.sub(rf"(?<=[\w)\]]){GAP}+(?=[\w(])", " ", text)
    return text.replace(GAP, "")


def _sign(marked: re.Match[str]) -> str:
    text = marked[2].strip()
    before = re.sub(f"[{UP}{DOWN}{END}{GAP}]", "", marked.string[: marked.start()][-20:])
    behind = marked.string[marked.end() :][:20]
    if not text or text[0] in "^_[":
        return marked[2]
    if text.isdigit() and HALF.match(behind):  # 3 1/2
        return " " * before[-1:].isalnum() + text
    following = behind.lstrip(END + GAP)[:1]
    runs_on = text[-1].isdigit() and following.isdigit()
    is_chemical = text.isdigit() and re.search(r"[^\W\d_]$|[)\]]$", before) and not runs_on
    is_low = marked[1] == DOWN
    if OPENING.search(before) or (is_chemical if is_low else OF_WORDS.fullmatch(text)):
        return text + " " * runs_on
    is_apart = runs_on or (following.isalnum() and not text[-1].isdigit())
    text = text if SIMPLE.fullmatch(text) and not is_apart else f"({text})"
    return ("_" if is_low else "^") + text


def text_size(tree: Element) -> int:
    """Count the characters of a tree that a reader sees, white space aside."""
    hidden = " or ".join(f"ancestor::{tag}" for tag in INVISIBLE)
    texts = tree.xpath(f"descendant::text()[not({hidden})]")
    return len("".join("".join(texts).split()))


def markdown(root: Element) -> str:
    """Render an element: headings `#`, list items `-` or `1.`, table rows `| a | b |`."""
    return "\n\n".join(_blocks(root))


def _blocks(element: Element) -> Iterator[str]:
    inline = element.text or ""
    for child in element:
        has_blocks = child.tag not in INVISIBLE and any(
            inner.tag in BLOCKS for inner in child.iterdescendants()
        )
        if child.tag in BLOCKS or has_blocks:
            yield from _paragraphs(inline)
            yield from _block(child)
            inline = ""
        else:
            inline += _inline(child)
        inline += child.tail or ""
    yield from _paragraphs(inline)


def _block(element: Element) -> Iterator[str]:
    if element.tag in HEADINGS:
        title = text_line(element)
        if title:
            yield f"{'#' * HEADINGS[element.tag]} {title}"
    elif element.tag in LISTS:
        yield from _items(element)
    elif element.tag == "table":
        yield from _rows(element)
    elif element.tag == "pre":
        text = _signed("".join(element.itertext())).strip("\n")
        if text.strip():
            yield text
    else:
        yield from _blocks(element)


def _items(element: Element) -> Iterator[str]:
    """Yield the items of a list, each with its mark; what is below the first block of an item is
    indented.
    """
    step = -1 if element.get("reversed") is not None else 1
    number = _integer(element, "start", len(element.findall("li")) if step < 0 else 1)
    styles = re.findall("(?:low|upp)er-(?:alpha|latin|roman)", element.get("style", ""))
    kind = [element.get("type", ""), *styles][-1]
    yield from _paragraphs(element.text or "")
    for child in element:
        parts = list(_block(child)) if child.tag in BLOCKS else [*_paragraphs(_inline(child))]
        below = [re.sub("^", "  ", part, flags=re.MULTILINE) for part in parts]
        if child.tag == "li":
            number = _integer(child, "value", number)
            shown = numeral(child.get("type", kind), number) or number
            mark = f"{shown}." if element.tag == "ol" else "-"
            below[:1] = [f"{mark} {part}" for part in parts[:1]]
            number += step
        yield from below if child.tag in (*LISTS, "li") else parts
        yield from _paragraphs(child.tail or "")


def _rows(table: Element) -> Iterator[str]:
    """Yield a table as one block of rows, and before it its caption; the cells of a layout table
    are blocks.
    """
    for caption in table.findall("caption"):
        yield from _blocks(caption)
    rows = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
    cells = [[cell for cell in row if cell.tag in CELLS] for row in rows]
    is_layout = table.get("role") in ("presentation", "none") or table.find(".//table") is not None
    if is_layout or all(len(row) < 2 for row in cells):
        yield from (block for row in cells for cell in row for block in _blocks(cell))
        return
    parts = groupby(rows, lambda row: row.getparent())  # head, bodies and foot: no cell spans two
    lines = [line for _, part in parts for line in _grid([*part]) if any(line)]
    if lines:
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _grid(rows: Sequence[Element]) -> Iterator[list[str]]:
    """Yield the texts of each row; a cell that spans rows or columns is repeated in them."""
    lines = [dict[int, str]() for _ in rows]  # column -> text
    for number, row in enumerate(rows):
        column = 0
        for cell in row.iterchildren(*CELLS):
            while column in lines[number]:
                column += 1
            text = text_line(cell)
            rows_reached = _integer(cell, "rowspan", 1)
            reached = lines[number:][: max(1, rows_reached) if rows_reached else None]
            for _ in range(max(1, min(_integer(cell, "colspan", 1), 1000))):  # as browsers limit it
                for line in reached:
                    line.setdefault(column, text)  # where two cells overlap, the upper one
                column += 1
    for line in lines:
        yield [line.get(column, "") for column in range(max(line, default=-1) + 1)]


def _integer(element: Element, name: str, default: int) -> int:
    """Return the number that an attribute begins with, as browsers read it."""
    number = re.match(r"\s*([+-]?\d{1,9})", element.get(name, ""))
    return int(number[1]) if number else default


def text_line(element: Element) -> str:
    """Return the text of an element in one line."""
    return " ".join(" ".join(_blocks(element)).split())


def _inline(element: Element) -> str:
    """The text of an element inside a line; comments and what no reader sees have none."""
    if not isinstance(element.tag, str) or element.tag in INVISIBLE:
        return ""
    if element.tag == "br":
        return BREAK
    text = (element.text or "") + "".join(_inline(child) + (child.tail or "") for child in element)
    return f"{text} " if element.tag == "summary" else text


def _paragraphs(inline: str) -> Iterator[str]:
    """Join white space, as browsers do, but for meant line ends; two of them part paragraphs."""
    lines = _signed("\n".join(" ".join(line.split()) for line in inline.split(BREAK)))
    parts = re.split(r"\n{2,}", lines)
    return (part.strip().replace(INDENT, "  ") for part in parts if part.strip())
