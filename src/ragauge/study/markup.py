"""HTML as text with the marks of Markdown for headings, lists and tables.

Blocks are parted by blank lines, so that none runs into the next sentence; a table is one block, a
row a line.
"""

import re
from collections.abc import Iterator
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
HIDDEN = ("head", "script", "style", "noscript", "template", "svg")
BREAK = "\v"  # a line's end that is meant


def text_of(root: Element) -> str:
    """Render an element: headings `#`, list items `-` or `1.`, table rows `| a | b |`."""
    return "\n\n".join(_blocks(root))


def _blocks(element: Element) -> Iterator[str]:
    inline = element.text or ""
    for child in element:
        has_blocks = child.tag not in HIDDEN and any(
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
    number = 1
    for child in element:
        if child.tag in LISTS:  # a list in a list, without an item around it
            yield from (f"  {item}" for item in _items(child))
        elif child.tag == "li" and (parts := list(_blocks(child))):
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
    lines = [line for line in (list(map(_line, row)) for row in rows) if any(line)]
    yield from filter(None, ["\n".join(f"| {' | '.join(line)} |" for line in lines)])


def _line(element: Element) -> str:
    return " ".join(" ".join(_blocks(element)).split())


def _inline(element: Element) -> str:
    """The text of an element inside a line; comments and what no reader sees have none."""
    if not isinstance(element.tag, str) or element.tag in HIDDEN:
        return ""
    if element.tag == "br":
        return BREAK
    return (element.text or "") + "".join(_inline(child) + (child.tail or "") for child in element)


def _paragraphs(inline: str) -> Iterator[str]:
    """Join white space, as browsers do, but for meant line ends; two of them part paragraphs."""
    lines = "\n".join(" ".join(line.split()) for line in inline.split(BREAK))
    return (part.strip() for part in re.split(r"\n{2,}", lines) if part.strip())
