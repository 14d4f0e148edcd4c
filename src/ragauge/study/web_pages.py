"""The content of web pages, by trafilatura: without navigation, comments, footers and
advertisements.
"""

import re
from typing import Any

from ragauge.study.markup import BLOCKS, HEADINGS, HIDDEN, Element, text_of

TITLES = ("//head/title", "//h1", "//h2|//h3")
NAVIGATION = "//nav|//footer|//*[@role='navigation']|//body/header|//body/div/header"
# of which trafilatura reads paragraphs alone
UNMARKED = "//body[not(.//article or .//main or .//*[@role='main'])]"
CONTROLS = "//button[not(ancestor::p)]|//select|//textarea|//option"
SIDE = {  # words of a class or an id
    *(
        "ad",
        "ads",
        "advertisement",
        "breadcrumb",
        "breadcrumbs",
        "comments",
        "copyright",
        "foot",
        "footer",
        "menu",
    ),
    *(
        "nav",
        "navbar",
        "navigation",
        "newsletter",
        "promo",
        "related",
        "share",
        "sidebar",
        "social",
        "toc",
        "widget",
    ),
}
AS_BLOCK = {
    "legend": "p",
    "figcaption": "p",
    **dict.fromkeys(("form", "aside", "details", "fieldset", "figure"), "div"),
}
# whose text trafilatura drops, or joins to its neighbours
AS_TEXT = ("time", "output", "label", "button", "summary")
AS_HTML = {
    "item": "li",
    "row": "tr",
    "cell": "td",
    "lb": "br",
    "quote": "blockquote",
    "ref": "a",
    "hi": "span",
}
SMALLEST_FORM = 40  # characters without controls and labels that make a form content
# in a list of links that is left out; characters that the page must hold besides
LINKS = 10
LINKS_PROSE = 200
SHORT = 400  # characters of prose, with fewer of which trafilatura returns paragraphs alone
LEAST_EXTRACTED = 0.5  # part of the prose, below which all of that is taken


def read(content: bytes, trafilatura: Any) -> tuple[str, str, int, int]:
    """Extract a page: (its content, its title, the characters of the content, those of the whole
    page).
    """
    tree = trafilatura.load_html(content)
    if tree is None:
        return "", "", 0, 0
    titles = (
        " ".join("".join(element.itertext()).split())
        for path in TITLES
        for element in tree.xpath(path)[:1]
    )
    title = next(filter(None, titles), "")
    visible = _size(tree)
    _prepare(tree)
    prose = _prose(tree)
    document = trafilatura.bare_extraction(tree, include_comments=False) if prose >= SHORT else None
    body = tree if document is None else _as_html(document.body)
    body = tree if _size(body) < LEAST_EXTRACTED * prose else body
    return text_of(body), title, min(_size(body), visible), visible


def _size(tree: Element) -> int:
    """Count the characters of a tree that a reader sees, white space aside."""
    hidden = " or ".join(f"ancestor::{tag}" for tag in HIDDEN)
    return sum(
        len(part) for text in tree.xpath(f".//text()[not({hidden})]") for part in text.split()
    )


def _prose(tree: Element) -> int:
    """Count the characters outside of links."""
    return _size(tree) - sum(map(_size, tree.iter("a")))


def _prepare(tree: Element) -> None:
    """Drop navigation and controls, rename what trafilatura drops though it is content, wrap texts
    next to blocks.
    """
    page = _size(tree)
    names = ("aside", "div", "section", "ul")
    side = [
        *tree.xpath(f"{NAVIGATION}|{CONTROLS}"),
        *(one for one in tree.iter(*names) if _is_side(one)),
    ]
    lists = [
        one
        for one in tree.iter("ul", "ol")
        if len(one.findall(".//a")) >= LINKS and 2 * _prose(one) < _size(one)
    ]
    forms = [
        one
        for one in tree.iter("form")
        if _size(one) - sum(map(_size, one.iter("label"))) < SMALLEST_FORM
    ]
    small = [one for one in side + forms if 2 * _size(one) < page]
    for element in small + lists * (_prose(tree) >= LINKS_PROSE):
        if element.getparent() is not None:
            element.drop_tree()
    for element in list(tree.iter(*AS_BLOCK, *AS_TEXT)):
        element.tail = f" {element.tail or ''}" if element.tag == "summary" else element.tail
        holds_blocks = any(inner.tag in BLOCKS for inner in element.iterdescendants())
        element.tag = AS_BLOCK.get(element.tag, "div" if holds_blocks else "span")
    for element in tree.xpath("//pre[not(.//code)]"):  # whose line ends trafilatura drops
        code = element.makeelement("code")
        code.text = element.text
        element.text = None
        code.extend(list(element))
        element.append(code)
    for element in tree.xpath("//ol[@start > 1]"):  # whose number trafilatura drops
        for number, item in enumerate(element.findall("li"), int(element.get("start"))):
            first = item if (item.text or "").strip() or item.find("p") is None else item.find("p")
            first.text = f"{number}. {first.text or ''}"
            item.tag = "div"
        element.tag = "div"
    for element in list(tree.iter("div", "section", "article", "main", "body", "blockquote")):
        _wrap(element)
    for body in tree.xpath(UNMARKED):
        article = body.makeelement("article")
        article.extend(list(body))
        body.append(article)


def _is_side(element: Element) -> bool:
    """Whether a part of a page is named as what stands beside the content, or is an aside of links."""
    is_aside = element.tag == "aside"
    named = f"{element.get('class')} {element.get('id')}".lower()
    words = re.split(r"[\s_-]+" if is_aside else r"\s+", named)
    return not SIDE.isdisjoint(words) or (is_aside and 2 * _prose(element) < _size(element))


def _wrap(element: Element) -> None:
    """Make a paragraph of each run of text and inline elements that stands next to blocks."""
    children = list(element)
    run = element.makeelement("p")
    run.text = element.text
    element.text = None
    for child in [*children, None]:
        if child is not None and child.tag not in BLOCKS:
            run.append(child)
            continue
        if "".join(run.itertext()).strip():
            element.append(run) if child is None else child.addprevious(run)
        run = element.makeelement("p")
        if child is not None:
            run.text = child.tail
            child.tail = None


def _as_html(body: Element) -> Element:
    for element in body.iter("head", "list", "code", *AS_HTML):
        tag = element.tag
        rend = element.get("rend") or ""
        if tag == "code":
            element.tag = "pre" if "\n" in "".join(element.itertext()) else "code"
        elif tag in ("head", "list"):
            element.tag = (
                rend if rend in (*HEADINGS, "ul", "ol") else {"head": "p", "list": "div"}[tag]
            )
        else:
            element.tag = "p" if rend.startswith(("dt", "dd")) else AS_HTML[tag]
    return body
