"""Random documents: what is read is what their generator says that a reader sees."""

import random
import re
from string import ascii_lowercase

import pytest

from ragauge.study import formats
from study_files import MAIN, OFFICE, docx

for library in ("trafilatura", "mammoth"):
    pytest.importorskip(library, reason="takes the packages of the extra study")

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


def value(name, text):
    return f"<w:{name} w:val='{text}'/>"


FORMATS = {
    "decimal": str,
    "decimalZero": lambda n: f"{n:02}",
    "lowerLetter": SHOWN["a"],
    "upperLetter": SHOWN["A"],
    "lowerRoman": SHOWN["i"],
    "upperRoman": SHOWN["I"],
}


def level_xml(levels):
    return "".join(
        f"<w:lvl w:ilvl='{i}'>{value('start', level['start'])}{value('numFmt', level['form'])}"
        f"{value('lvlRestart', level['restart']) if level['restart'] != '' else ''}"
        f"{'<w:isLgl/>' if level['legal'] else ''}{value('lvlText', level['text'])}</w:lvl>"
        for i, level in enumerate(levels)
    )


def random_levels(rng):
    levels = []
    for i in range(3):
        above = "".join(f"%{n + 1}." for n in range(i)) if rng.random() < 0.7 else ""
        levels.append(
            {
                "form": rng.choice(list(FORMATS)),
                "start": rng.choice([1, 1, 3]),
                "text": f"{above}%{i + 1}{rng.choice([')', '.', ''])}",
                "restart": rng.choice(["", "", "", 0, 1]) if i == 2 else "",
                "legal": rng.random() < 0.2,
            }
        )
    return levels


def package_of(lists, styles=""):
    return {
        "word/numbering.xml": f"<w:numbering xmlns:w='{MAIN}'>{lists}</w:numbering>",
        "word/styles.xml": f"<w:styles xmlns:w='{MAIN}'>{styles}</w:styles>",
    }


def label_of(levels, level, counts):
    shown = levels[level]["text"]
    for i, each in enumerate(levels):
        write = str if levels[level]["legal"] else FORMATS[each["form"]]
        shown = shown.replace(f"%{i + 1}", write(counts[i] or each["start"]))
    return shown


def test_random_numbers_of_word():
    """Two lists of one definition, of which the second may begin anew."""
    for seed in range(COUNT):
        rng = random.Random(seed)
        levels = random_levels(rng)
        override = rng.choice([None, 1, 5])
        anew = f"<w:lvlOverride w:ilvl='0'>{value('startOverride', override)}</w:lvlOverride>"
        lists = f"<w:abstractNum w:abstractNumId='7'>{level_xml(levels)}</w:abstractNum>"
        lists += f"<w:num w:numId='1'>{value('abstractNumId', 7)}</w:num>"
        lists += f"<w:num w:numId='2'>{value('abstractNumId', 7)}{anew if override else ''}</w:num>"
        is_styled = rng.random() < 0.5
        styles = "".join(
            f"<w:style w:type='paragraph' w:styleId='S{n}{i}'><w:name w:val='S'/>"
            f"<w:pPr><w:numPr>{value('ilvl', i)}{value('numId', n)}</w:numPr></w:pPr></w:style>"
            f"<w:style w:type='paragraph' w:styleId='T{n}{i}'>{value('basedOn', f'S{n}{i}')}</w:style>"
            for n in (1, 2)
            for i in range(3)
        )
        counts = [0, 0, 0]  # of none yet
        blocks = []
        expected = []
        is_begun = False
        deepest = 0
        for n in range(rng.randint(1, 7)):
            which = rng.choice([1, 1, 2])
            level = rng.choice([None, *range(deepest + 1)])
            if level is None:
                blocks.append(f"<w:p><w:r><w:t>text {n}</w:t></w:r></w:p>")
                expected.append(f"text {n}")
                continue
            deepest = min(level + 1, 2)
            if which == 2 and level == 0 and override and not is_begun:
                counts[0] = 0
                is_begun = True
            first = override if override and which == 2 else levels[0]["start"]
            starts = [first, *(each["start"] for each in levels[1:])]
            counts[level] = counts[level] + 1 if counts[level] else starts[level]
            for below in range(level + 1, 3):
                restart = levels[below]["restart"]
                if restart == "" or level < restart:
                    counts[below] = 0
            own = f"<w:numPr>{value('ilvl', level)}{value('numId', which)}</w:numPr>"
            style = value("pStyle", f"{rng.choice('ST')}{which}{level}")
            blocks.append(
                f"<w:p><w:pPr>{style if is_styled else own}</w:pPr><w:r><w:t>text {n}</w:t></w:r></w:p>"
            )
            shown = [{**each, "start": start} for each, start in zip(levels, starts, strict=True)]
            expected.append(f"{'  ' * level}{label_of(shown, level, counts)} text {n}")
        made = formats.docx(docx(*blocks, parts=package_of(lists, styles)))
        assert made.text.split("\n\n") == expected, (seed, lists, blocks)
        assert not made.omissions


RUN_STYLES = (
    "<w:style w:type='character' w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>"
    "<w:style w:type='character' w:styleId='Gone'><w:rPr><w:vanish/></w:rPr></w:style>"
    "<w:style w:type='character' w:styleId='Deeper'><w:basedOn w:val='Gone'/></w:style>"
    "<w:style w:type='paragraph' w:styleId='Hidden'><w:rPr><w:vanish/></w:rPr></w:style>"
)
ONE_LIST = (
    f"<w:abstractNum w:abstractNumId='1'><w:lvl w:ilvl='0'>{value('start', 1)}</w:lvl></w:abstractNum>"
    f"<w:num w:numId='1'>{value('abstractNumId', 1)}</w:num>"
)
UP = ("<w:vertAlign w:val='superscript'/>", "<w:rStyle w:val='Up'/>", "<w:position w:val='6'/>")
GONE = (
    "<w:vanish/>", "<w:vanish w:val='1'/>", "<w:strike/>", "<w:dstrike w:val='true'/>", "<w:rStyle w:val='Gone'/>",
    "<w:rStyle w:val='Deeper'/>",
)  # fmt: skip
PLAIN = (
    "", "<w:b/>", "<w:vanish w:val='0'/>", "<w:rStyle w:val='Gone'/><w:vanish w:val='false'/>", "<w:strike w:val='0'/>",
)  # fmt: skip


def run(text, mark=""):
    return f"<w:r><w:rPr>{mark}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def test_random_runs_of_word():
    for seed in range(COUNT):
        rng = random.Random(seed)
        blocks = []
        expected = []
        gone = 0
        for _ in range(rng.randint(1, 4)):
            runs = run("seen ")
            text = "seen "
            for _ in range(rng.randint(1, 5)):
                word = rng.choice(WORDS)
                n = rng.randint(2, 30)
                kind = rng.randrange(5)
                if kind == 0:
                    runs += run(word, rng.choice(GONE))
                    gone += len(word)
                elif kind == 1:
                    runs += run("10", rng.choice(PLAIN)) + run(n, rng.choice(UP)) + run(" ")
                    text += f"10^{n} "
                elif kind == 2:
                    runs += f"<w:fldSimple w:instr='REF x'>{run(f'{word} ')}</w:fldSimple>"
                    text += f"{word} "
                elif kind == 3:
                    runs += f"<w:del><w:r><w:delText>{word}</w:delText></w:r></w:del><w:ins>{run('in ')}</w:ins>"
                    text += "in "
                    gone += len(word)
                else:
                    runs += run(f"{word} ", rng.choice(PLAIN))
                    text += f"{word} "
            blocks.append(f"<w:p>{runs}</w:p>")
            expected.append(" ".join(text.split()))
        number = f"<w:numPr>{value('ilvl', 0)}{value('numId', 1)}</w:numPr>"
        blocks.append(f"<w:p><w:pPr>{value('pStyle', 'Hidden')}{number}</w:pPr>{run('xyz')}</w:p>")
        blocks.append(f"<w:p><w:pPr>{number}</w:pPr>{run('first')}</w:p>")
        expected.append("1. first")
        is_strict = rng.random() < 0.5
        made = formats.docx(
            docx(*blocks, parts=package_of(ONE_LIST, RUN_STYLES), is_strict=is_strict)
        )
        assert made.text.split("\n\n") == expected, (seed, blocks)
        counts = [int(part.rpartition("(")[2].split()[0]) for part in made.omissions.split(", ")]
        assert sum(counts) == gone + 3


def test_random_tables_of_word():
    for seed in range(COUNT):
        rng = random.Random(seed)
        width = rng.randint(2, 4)
        height = rng.randint(2, 4)
        grid = {}
        table = ""
        reach = [0] * width  # rows that a cell above still covers
        for y in range(height):
            before = rng.choice([0, 0, 1]) if not any(reach) else 0
            after = rng.choice([0, 0, 1]) if not any(reach) and before < width - 1 else 0
            marks = value("gridBefore", before) * (before > 0) + value("gridAfter", after) * (
                after > 0
            )
            cells = f"<w:trPr>{marks}</w:trPr>"
            grid |= {(y, x): "" for x in (*range(before), *range(width - after, width))}
            x = before
            while x < width - after:
                if reach[x]:
                    reach[x] -= 1
                    grid[y, x] = grid[y - 1, x]
                    cells += "<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>"
                    x += 1
                    continue
                free = next((i for i in range(x, width - after) if reach[i]), width - after) - x
                wide = min(rng.choice([1, 1, 2]), free)
                is_tall = wide == 1 and rng.random() < 0.3
                reach[x] = rng.randint(0, 2) if is_tall else 0
                text = f"c{y}{x}"
                grid |= {(y, x + i): text for i in range(wide)}
                merge = (
                    value("gridSpan", wide) * (wide > 1) + "<w:vMerge w:val='restart'/>" * is_tall
                )
                cells += f"<w:tc><w:tcPr>{merge}</w:tcPr><w:p>{run(text)}</w:p></w:tc>"
                x += wide
            table += f"<w:tr>{cells}</w:tr>"
        if all(row.count("<w:tc>") < 2 for row in table.split("</w:tr>")):  # a frame around blocks
            continue
        rows = [[grid[y, x] for x in range(width)] for y in range(height)]
        made = formats.docx(docx(f"<w:tbl>{table}</w:tbl>")).text
        expected = [f"| {' | '.join(row)} |" for row in rows if any(row)]
        assert made.split("\n") == expected, (seed, table)


MATH = f"xmlns:m='{OFFICE}/officeDocument/2006/math'"
TEXT = "<m:r><m:t>{}</m:t></m:r>"
# an equation of one or two others: of Word, of MathML, and in one line
EQUATIONS = {
    "sum": (
        "{word}<m:r><m:t>+</m:t></m:r>{word2}",
        "<mrow>{mathml}<mo>+</mo>{mathml2}</mrow>",
        "{line}+{line2}",
    ),
    "fenced": (
        "<m:d><m:e>{word}</m:e></m:d>",
        "<mrow><mo>(</mo>{mathml}<mo>)</mo></mrow>",
        "({line})",
    ),
    "power": (
        "<m:sSup><m:sSupPr/><m:e>{word}</m:e><m:sup>{word2}</m:sup></m:sSup>",
        "<msup><mrow>{mathml}</mrow><mrow>{mathml2}</mrow></msup>",
        "{one}^{other}",
    ),
    "index": (
        "<m:sSub><m:e>{word}</m:e><m:sub>{word2}</m:sub></m:sSub>",
        "<msub><mrow>{mathml}</mrow><mrow>{mathml2}</mrow></msub>",
        "{one}_{other}",
    ),
    "both": (
        "<m:sSubSup><m:e>{word}</m:e><m:sub><m:r><m:t>i</m:t></m:r></m:sub><m:sup>{word2}</m:sup></m:sSubSup>",
        "<msubsup><mrow>{mathml}</mrow><mi>i</mi><mrow>{mathml2}</mrow></msubsup>",
        "{one}_i^{other}",
    ),
    "fraction": (
        "<m:f><m:num>{word}</m:num><m:den>{word2}</m:den></m:f>",
        "<mfrac><mrow>{mathml}</mrow><mrow>{mathml2}</mrow></mfrac>",
        "{one}/{other}",
    ),
    "root": (
        "<m:rad><m:radPr><m:degHide m:val='1'/></m:radPr><m:deg/><m:e>{word}</m:e></m:rad>",
        "<msqrt>{mathml}</msqrt>",
        "\u221a{one}",
    ),
    "third": (
        "<m:rad><m:deg><m:r><m:t>3</m:t></m:r></m:deg><m:e>{word}</m:e></m:rad>",
        "<mroot><mrow>{mathml}</mrow><mn>3</mn></mroot>",
        "{one}^(1/3)",
    ),
    "over": (
        "<m:f><m:fPr><m:type m:val='noBar'/></m:fPr><m:num>{word}</m:num><m:den>{word2}</m:den></m:f>",
        "<mfrac linethickness='0'><mrow>{mathml}</mrow><mrow>{mathml2}</mrow></mfrac>",
        "({line} over {line2})",
    ),
}


def enclosed(text):
    return text if text.isalnum() else f"({text})"


def equation(rng, depth=0):
    """An equation of Word, of MathML, and in one line; a product begins and ends where it must."""
    if depth == 3 or rng.random() < 0.25:
        letter = rng.choice("abcxyz")
        number = str(rng.randint(2, 40))
        tag, text = rng.choice([("mi", letter), ("mn", number)])
        return TEXT.format(text), f"<{tag}>{text}</{tag}>", text
    names = ("word", "mathml", "line")
    parts = dict(zip(names, equation(rng, depth + 1), strict=True))
    second = dict(zip(names, equation(rng, depth + 1), strict=True))
    parts |= {f"{name}2": value for name, value in second.items()}
    parts |= {"one": enclosed(parts["line"]), "other": enclosed(second["line"])}
    return tuple(form.format(**parts) for form in EQUATIONS[rng.choice(list(EQUATIONS))])


def same(text):
    """Parentheses twice are parentheses once; `(a)` that a document writes may stay as it is."""
    opened = []
    pairs = {}
    for place, char in enumerate(text):
        if char == "(":
            opened.append(place)
        elif char == ")":
            pairs[opened.pop()] = place
    outer = [pair for pair in pairs.items() if pairs.get(pair[0] + 1) == pair[1] - 1]
    left_out = {place for pair in outer for place in pair}
    return "".join(char for place, char in enumerate(text) if place not in left_out)


def test_random_equations():
    for seed in range(COUNT):
        omml, mathml, expected = equation(random.Random(seed))
        page = f"<html><body><p>It is <math>{mathml}</math></p></body></html>"
        assert same(formats.html(page.encode()).text) == f"It is {same(expected)}", (seed, mathml)
        document = docx(f"<w:p>{run('It is ')}<m:oMath {MATH}>{omml}</m:oMath></w:p>")
        assert same(formats.docx(document).text) == f"It is {same(expected)}", (seed, omml)
