"""HTML as one tree, repaired once, and as text with the marks of Markdown.

Pages, and Word documents that were made HTML, are read by these rules alone. Blocks are parted by
blank lines, so that none runs into the next sentence; a table is one block, a row a line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Element = Any  # of lxml

HEADINGS = {f"h{level}": level for level in range(1, 7)}
LISTS = ("ul", "ol", "menu")
CELLS = ("td", "th")
BLOCKS = frozenset((
    *HEADINGS, *LISTS, *CELLS, "li", "table", "thead", "tbody", "tfoot", "tr", "caption", "dl", "dt", "dd", "p", "pre",
    "blockquote", "div", "section", "article", "main", "body", "html", "form", "fieldset", "legend", "details",
    "figure", "figcaption", "aside", "address", "hgroup", "header", "footer", "nav", "hr",
))  # fmt: skip
INVISIBLE = ("head", "script", "style", "noscript", "template", "svg", "rp", "annotation")
_STYLE = "contains(translate(@style, ' ', ''), '{}')"
LEFT_OUT = {  # elements that are hidden, deleted or readings
    "hidden text": f"//*[@hidden or {_STYLE.format('display:none')}"
    f" or {_STYLE.format('visibility:hidden')}]",
    "deleted text": "//del | //s | //strike",
    "readings of characters": "//ruby//rt",
}
SIGNS = {"sup": "^", "sub": "_", "msup": "^", "msub": "_", "mfrac": "/"}
MAX_SPAN = 1000
BREAK = "\v"  # a line's end that is meant


def repair(tree: Element) -> Counter[str]:
    """Drop what a reader does not see, and write exponents and equations with signs, in place.

    Returns: the characters that were dropped, by kind.
    """
    left_out = Counter[str]()
    for name, path in LEFT_OUT.items():
        for element in tree.xpath(path):
            if element.getparent() is not None and element.tag != "body":
                left_out[name] += text_size(element)
                element.drop_tree()
    for element in tree.iter("sup", "sub"):
        previous = element.getprevious()
        before = (element.getparent().text if previous is None else previous.tail) or ""
        follows = before[-1:].isdigit() or (element.tag == "sup" and before[-1:].isalpha())
        if follows and re.match(r"[\d+−-]", element.text_content()):
            element.text = SIGNS[element.tag] + (element.text or "")
    for element in tree.iter("math", "msup", "msub", "mfrac"):
        if element.tag == "math":
            element.text = f" {element.text or ''}"
        elif len(element) == 2:
            element[0].tail = SIGNS[element.tag]
    return +left_out


def text_size(tree: Element) -> int:
    """Count the characters of a tree that a reader sees, white space aside."""
    hidden = " or ".join(f"ancestor::{tag}" for tag in INVISIBLE)
    return sum(
        len(part) for text in tree.xpath(f".//text()[not({hidden})]") for part in text.split()
    )


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
        yield from (f"{'#' * HEADINGS[element.tag]} {title}" for title in [_line(element)] if title)
    elif element.tag in LISTS:
        yield from _items(element)
    elif element.tag == "table":
        yield from _rows(element)
    elif element.tag == "pre":
        yield from filter(str.strip, ["".join(element.itertext()).strip("\n")])
    else:
        yield from _blocks(element)


def _items(element: Element) -> Iterator[str]:
    """Yield the items of a list, each with its mark; what is below the first block of an item is
    indented.
    """
    start = element.get("start", "")
    number = int(start) if start.isdecimal() else 1
    for child in element:
        if child.tag in LISTS:  # a list in a list, without an item around it
            yield from (f"  {item}" for item in _items(child))
            continue
        parts = list(_blocks(child)) if child.tag == "li" else []
        if parts:
            yield (f"{number}. " if element.tag == "ol" else "- ") + parts[0]
            yield from (re.sub("^", "  ", part, flags=re.MULTILINE) for part in parts[1:])
            number += 1


def _rows(table: Element) -> Iterator[str]:
    """Yield a table as one block of rows, and before it its caption; the cells of a layout table
    are blocks.
    """
    for caption in table.findall("caption"):
        yield from _blocks(caption)
    own = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
    rows = [[cell for cell in row if cell.tag in CELLS] for row in own]
    is_layout = table.get("role") in ("presentation", "none") or table.find(".//table") is not None
    if is_layout or all(len(row) < 2 for row in rows):
        yield from (block for row in rows for cell in row for block in _blocks(cell))
        return
    lines = [line for line in _grid(rows) if any(line)]
    yield from filter(None, ["\n".join(f"| {' | '.join(line)} |" for line in lines)])


def _grid(rows: Sequence[Sequence[Element]]) -> Iterator[list[str]]:
    """Yield the texts of each row; a cell that spans rows or columns is repeated in them."""
    reaching = dict[int, tuple[str, int]]()  # column -> a text, and how many rows it reaches down
    for row in rows:
        line = {column: text for column, (text, _) in reaching.items()}
        reaching = {column: (text, n - 1) for column, (text, n) in reaching.items() if n > 1}
        column = 0
        for cell in row:
            text = _line(cell)
            rows_reached = _span(cell, "rowspan")
            for _ in range(_span(cell, "colspan")):
                while column in line:
                    column += 1
                line[column] = text
                if rows_reached > 1:
                    reaching[column] = (text, rows_reached - 1)
        yield [line.get(column, "") for column in range(max(line, default=-1) + 1)]


def _span(cell: Element, name: str) -> int:
    value = cell.get(name, "1").strip()
    return min(int(value), MAX_SPAN) if value.isdecimal() else 1


def _line(element: Element) -> str:
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
    lines = "\n".join(" ".join(line.split()) for line in inline.split(BREAK))
    return (part.strip() for part in re.split(r"\n{2,}", lines) if part.strip())
