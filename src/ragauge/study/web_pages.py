"""The content of web pages: trafilatura finds where it stands, the page's own tree is read."""

import re
from collections import Counter
from copy import deepcopy
from typing import Any

from ragauge.study import html_tree
from ragauge.study.html_tree import Element, text_size

TITLES = ("//head/title", "//h1", "//h2|//h3")
ASIDE = (
    "//nav|//footer|//*[@role='navigation']|//body/header|//body/div/header"
    "|//button[not(ancestor::p)]|//select|//textarea|//option"
)
ASIDE_NAME = re.compile(  # a word of a class or an id
    r"(?<!\S)(ads?|advertisement|breadcrumbs?|comments|copyright|foot|footer|menu|nav|navbar"
    r"|navigation|newsletter|promo|related|share|sidebar|social|toc|widget)(?!\S)"
)
PARTS = ("body", "main", "article", "section", "div", "form", "td")  # that may be the content
MIN_PROSE = 400  # characters, with fewer of which trafilatura returns paragraphs alone
MIN_SHARE = 0.5  # part of the page's prose, below which all of that is taken
MAX_LINES = 200  # recognised ones, the longest, by which the content's element is found
MIN_MATCHED = 0.95  # part of what trafilatura recognised that the content's element must hold


def read(content: bytes, trafilatura: Any) -> tuple[str, str, Counter[str], int]:
    """Read a page.

    Returns: the text of its content, its title, the characters that were left out by kind, and
    those of the whole page.
    """
    tree = trafilatura.load_html(content)
    if tree is None:
        return "", "", Counter(), 0
    visible = text_size(tree)
    left_out = html_tree.repair(tree)
    elements = (element for path in TITLES for element in tree.xpath(path)[:1])
    title = next(filter(None, map(html_tree.text_line, elements)), "")
    before = text_size(tree)
    _drop_asides(tree)
    body = _content(tree, trafilatura) if _prose(tree) >= MIN_PROSE else tree
    left_out["navigation, footers and controls"] = before - text_size(body)
    return html_tree.markdown(body), title, +left_out, visible


def _prose(tree: Element) -> int:
    """Count the characters outside of links."""
    return text_size(tree) - sum(map(text_size, tree.iter("a")))


def _drop_asides(tree: Element) -> None:
    """Drop navigation and controls, unless they are half of the page."""
    page = text_size(tree)
    parts = tree.iter("aside", "div", "section", "ul")
    named = [element for element in parts if _is_aside(element)]
    for element in [*tree.xpath(ASIDE), *named]:
        if element.getparent() is not None and 2 * text_size(element) < page:
            element.drop_tree()


def _is_aside(element: Element) -> bool:
    """Whether a part of a page is named as what stands next to the content, or is one of links."""
    is_aside = element.tag == "aside"
    names = f"{element.get('class')} {element.get('id')}".lower()
    names = re.sub("[_-]", " ", names) if is_aside else names
    is_of_links = is_aside and 2 * _prose(element) < text_size(element)
    return is_of_links or bool(ASIDE_NAME.search(names))


def _content(tree: Element, trafilatura: Any) -> Element:
    """Find the smallest element that holds what trafilatura recognises as content."""
    recognised = trafilatura.extract(deepcopy(tree), include_comments=False) or ""
    lines = sorted(map(_letters, recognised.split("\n")), key=len)[-MAX_LINES:]

    def matched(element: Element) -> int:
        text = _letters(element.text_content())
        return sum(len(line) for line in lines if line in text)

    wanted = MIN_MATCHED * matched(tree)
    content = tree
    inner = [tree]
    while inner:
        content = inner[0] if inner[0].tag in PARTS else content
        children = (child for child in inner[0] if isinstance(child.tag, str))
        inner = [child for child in children if matched(child) >= wanted]
    return content if _prose(content) >= MIN_SHARE * _prose(tree) else tree


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)
