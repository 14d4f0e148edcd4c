"""Random documents: what is read is what their generator says that a reader sees."""

import random
import re
from string import ascii_lowercase

import pytest

from ragauge.study import formats

pytest.importorskip("trafilatura", reason="takes the packages of the extra study")

COUNT = 400  # documents of each kind
WORDS = ["tea", "harbour", "25 bar", "Osprey", "rye 7", "v2.4", "12,5"]


def around(rng, html):
    """Elements and spaces that change nothing of what is seen."""
    for _ in range(rng.randint(0, 3)):
        tag = rng.choice(
            ["b", "i", "span", "em class=x", "a href='/page'", "span style='color: red'"]
        )
        html = f"<{tag}>{html}</{tag.split()[0]}>"
    return html


def raised(rng, text, is_low=False):
    name = "sub" if is_low else "super"
    style = rng.choice([f"vertical-align: {name}", f"COLOR:red; Vertical-Align:{name.upper()} ;"])
    tag = "sub" if is_low else "sup"
    return rng.choice(
        [f"<{tag}>{around(rng, text)}</{tag}>", f"<span style='{style}'>{text}</span>"]
    )


def hidden(rng, html):
    tags = (
        "span hidden", "b HIDDEN=''", "i style='display:none'", "u style='Display : NONE'", "del", "s", "strike",
        "em style='color:red;display:none !important'", "b style='text-decoration: line-through'",
        "span style='visibility:hidden'", "i style='VISIBILITY: Collapse'", "span style='display:inline;display:none'",
    )  # fmt: skip
    tag = rng.choice(tags)
    return f"<{tag}>{html}</{tag.split()[0]}>"


def piece(rng):
    """A part of a line: its HTML, and what is seen of it."""
    word = rng.choice(WORDS)
    n = rng.randint(2, 30)
    kind = rng.randrange(9)
    if kind == 0:
        return hidden(rng, word), ""
    if kind == 1:
        sign = rng.choice(["", "-", "\u2212"])
        return around(rng, "10") + around(rng, raised(rng, f"{sign}{n}")), f"10^{sign}{n}"
    if kind == 2:
        note = f"<a href='#{rng.choice(['fn', 'n', 'cite_note-', 'note'])}{n}'>{n}</a>"
        return f"{word}{around(rng, raised(rng, note))}", f"{word}[{n}]"
    if kind == 3:
        link = f"<sup><a href='https://example.org/powers'>{n}</a></sup>"
        return f"2{around(rng, link)}", f"2^{n}"
    if kind == 4:
        return f"H{raised(rng, '2', is_low=True)}O", "H2O"
    if kind == 5:
        return f"10{raised(rng, str(n))}{word}", f"10^({n}){word}" if word[
            0
        ].isdigit() else f"10^{n}{word}"
    if kind == 6:
        base = rng.choice(["101", "5"])
        return f"{base}{raised(rng, str(n), is_low=True)}", f"{base}_{n}"
    if kind == 7:
        return f"k{around(rng, raised(rng, 'n+1'))}", "k^(n+1)"
    return around(rng, word), word


def random_line(rng):
    """Pieces with blanks between them: (HTML, what is seen)."""
    pieces = [piece(rng) for _ in range(rng.randint(1, 5))]
    shown = " ".join(["seen", *(text for _, text in pieces)])
    return "seen " + " ".join(html for html, _ in pieces), " ".join(shown.split())


def random_table(rng):
    """A grid of cells that do not overlap, in a head and bodies, written as HTML may."""
    width = rng.randint(2, 4)
    rows = []
    html = ""
    for part in rng.choice([["tr"], ["thead", "tbody"], ["tbody", "tbody"]]):
        height = rng.randint(1, 4)
        grid = {}
        written = ""
        for y in range(height):
            written += "<tr>"
            for x in range(width):
                if (y, x) in grid:
                    continue
                wide = 1
                while x + wide < width and (y, x + wide) not in grid and rng.random() < 0.3:
                    wide += 1
                high = min(rng.choice([1, 1, 2, 3]), height - y)
                source, text = random_line(rng)
                grid |= {(y + j, x + i): text for j in range(high) for i in range(wide)}
                is_last = y + high == height
                down = (
                    rng.choice([high, f" {high}.5"])
                    if high > 1 or not is_last
                    else rng.choice(["0", "99", "x"])
                )
                across = (
                    rng.choice([wide, f"+{wide}", f"{wide}px"])
                    if wide > 1
                    else rng.choice(["1", "", "-2", "0"])
                )
                down = 1 if down == "x" and high > 1 else down
                written += f"<td rowspan='{down}' colspan='{across}'>{source}</td>"
            written += "</tr>"
        html += written if part == "tr" else f"<{part}>{written}</{part}>"
        rows += [[grid[y, x] for x in range(width)] for y in range(height)]
    if all(row.count("<td") < 2 for row in html.split("</tr>")):  # a frame around blocks
        return random_table(rng)
    return f"<table>{html}</table>", "\n".join(f"| {' | '.join(row)} |" for row in rows)


def roman(number):
    tens = ["", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc"]
    ones = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]
    return tens[number // 10 % 10] + ones[number % 10]


SHOWN = {
    "1": str,
    "a": lambda n: ascii_lowercase[n - 1],
    "A": lambda n: ascii_lowercase[n - 1].upper(),
    "i": roman,
    "I": lambda n: roman(n).upper(),
}


def random_list(rng):
    kind = rng.choice(list(SHOWN))
    count = rng.randint(1, 5)
    is_reversed = rng.random() < 0.3
    start = rng.choice([None, 6, 9])
    number = start if start else (count if is_reversed else 1)
    html = f"<ol type={kind}{' reversed' * is_reversed}{f' start={start}' if start else ''}>"
    lines = []
    for _ in range(count):
        value = rng.choice([None, None, None, 17])
        number = value or number
        source, text = random_line(rng)
        if rng.random() < 0.15:  # which counts as well
            source, text = rng.choice(["", "<b></b>"]), ""
        own = rng.choice([None, None, None, "a"])
        html += (
            f"<li{f' value={value}' if value else ''}{f' type={own}' if own else ''}>{source}</li>"
        )
        label = SHOWN[own or kind](number) if number > 0 else number
        lines += [f"{label}. {text}"] if text else []
        number += -1 if is_reversed else 1
    return f"{html}</ol>", "\n\n".join(lines)


def random_paragraph(rng):
    html, text = random_line(rng)
    return f"<p>{html}</p>", text


def test_random_pages():
    makers = [random_table, random_list, random_paragraph]
    for seed in range(COUNT):
        rng = random.Random(seed)
        blocks = [rng.choice(makers)(rng) for _ in range(rng.randint(1, 5))]
        page = f"<html><body>{''.join(html for html, _ in blocks)}</body></html>"
        expected = "\n\n".join(filter(None, (text for _, text in blocks)))
        assert formats.html(page.encode()).text == expected, (seed, page)


def levels_of_digits(rng, depth=0):
    """Any mixture of text, raised and lowered digits and elements: HTML, and each digit's level."""
    html = ""
    digits = []
    for _ in range(rng.randint(1, 4)):
        number = str(rng.randint(1, 99))
        tag = rng.choice(["", "sup", "sub", "b", "i", "mark"])
        if tag in ("sup", "sub", ""):
            html += f"<{tag}>{number}</{tag}>" if tag else number
            digits += [(tag, digit) for digit in number]
        else:
            inner, below = levels_of_digits(rng, depth + 1) if depth < 3 else ("x", [])
            html += f"<{tag}>{inner}</{tag}>"
            digits += below
        html += rng.choice(["", "", *"aB(). ,/%"])
    return html, digits


def test_no_number_has_digits_of_two_levels():
    for seed in range(COUNT):
        html, digits = levels_of_digits(random.Random(seed))
        page = f"<html><body><p>It {html} is</p></body></html>"
        numbers = re.findall(r"\d+", formats.html(page.encode()).text)
        assert "".join(numbers) == "".join(digit for _, digit in digits), (seed, html)
        for number in numbers:
            assert len({level for level, _ in digits[: len(number)]}) == 1, (seed, html)
            digits = digits[len(number) :]
