"""Pages as browsers show them: what style sheets, roles and controls say of their text."""

import random
import string
import time

import pytest

from ragauge.study import formats
from study_files import docx

for library in ("trafilatura", "mammoth", "pypdf"):
    pytest.importorskip(library, reason="takes the packages of the extra study")


def read(body, sheet=""):
    page = f"<html><head><style>{sheet}</style></head><body>{body}</body></html>"
    return formats.html(page.encode())


LOOKS = {  # declaration -> what "12<span>7</span> bar" is read as
    "vertical-align: SUPER": "12^7 bar",
    "vertical-align:sub; color:red": "12_7 bar",
    "text-decoration: line-through": "12 bar",
    "text-decoration-line:line-through !important": "12 bar",
    "display: none": "12 bar",
    "visibility:hidden": "12 bar",
    "color: red; vertical-align: baseline": "127 bar",
}


@pytest.mark.parametrize("seed", range(60))
def test_text_looks_as_the_last_rule_of_its_classes_says(seed):
    choose = random.Random(seed)
    names = ["".join(choose.choices(string.ascii_lowercase, k=5)) for _ in range(6)]
    declaration, expected = choose.choice([*LOOKS.items()])
    own, other, last = names[:3]
    selector = choose.choice([f".{own}", f"span.{own}", f".x, .{own}", f".{own}.{other}"])
    others = [
        f".{names[3]}{{display:none}}",
        f"p.{own}{{display:none}}",
        f"@media print{{.{own}{{display:none}} .{other}{{visibility:hidden}}}}",
        f"@import url('{own}');",
        f"/* .{own}{{display:none}} */",
        f".{names[4]} .{own}{{display:none}}",
        f".{own}:hover{{display:none}}",
    ]
    choose.shuffle(others)
    sheet = "\n".join([*others[:3], f"{selector} {{ {declaration} }}", *others[3:]])
    classes = f"{other} {own}"
    page = read(f"<p>The limit is 12<span class='{classes}'>7</span> bar.</p>", sheet)
    assert page.text == f"The limit is {expected}."
    shown = f".{last}{{display:none}} .{last}.{own}{{display:inline}}"
    page = read(f"<p>The limit is 12<span class='{own} {last}'>7</span> bar.</p>", shown)
    assert page.text == "The limit is 127 bar."


@pytest.mark.parametrize("text", ["a ", "@", "a{", "a,", ".a", "@a{"])
def test_long_style_sheets_are_read_in_no_time(text):
    started = time.perf_counter()
    assert read("<p>12 bar</p>", text * 60_000).text == "12 bar"
    assert time.perf_counter() - started < 5


def test_lists_are_numbered_as_their_class_says():
    sheet = ".a{list-style-type:lower-alpha} .r{list-style:upper-roman inside}"
    page = read("<ol class=a><li>x<li>y</ol><ol class=r><li>z</ol>", sheet)
    assert page.text == "a. x\n\nb. y\n\nI. z"


def test_the_text_of_drawings_is_counted():
    page = read("<p>12 bar</p><svg><title>Arrow</title><text x=1>88 bar</text></svg>")
    assert (page.text, page.omissions) == ("12 bar", "text of drawings (5 characters)")


def test_what_a_style_sheet_hides_is_counted():
    page = read("<p>Old 99 <span class='a'>was 88</span></p>", ".a{display:none}")
    assert "hidden text (5 characters)" in page.omissions


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("30<a role='doc-noteref' href='#n1'>2</a> mg", "30[2] mg"),
        ("30<a epub:type='noteref' href='n.xhtml#c2'>2</a> mg", "30[2] mg"),
        ("30<a role='doc-noteref' href='#n1'><sup>2</sup></a> mg", "30[2] mg"),
        ("10<span style='font-size:70%;position:relative;top:-.5em'>6</span> mg", "10^6 mg"),
        ("10<span style='position:absolute;top:-99px'>6</span> mg", "106 mg"),
        ("10<span class='superscript'>6</span> mg", "10^6 mg"),
        ("<span style='display:block'>a b</span><span style='display: block'>c</span>", "a b\n\nc"),
        (
            "<input type=checkbox checked> tight <input type='checkbox'> rusty",
            "[x] tight [ ] rusty",
        ),
        ("Name: <input value='Ada Voss'><input type=hidden value=no>", "Name: Ada Voss"),
    ],
)
def test_notes_raised_text_blocks_and_controls_are_read_as_they_look(body, text):
    assert read(f"<p>{body}</p>").text == text


@pytest.mark.parametrize(("checked", "mark"), [("<w:checked/>", "[x]"), ("", "[ ]")])
def test_boxes_of_a_word_form_are_read(checked, mark):
    field = "<w:r><w:fldChar w:fldCharType='{}'>{}</w:fldChar></w:r>"
    box = f"<w:ffData><w:checkBox><w:default w:val='0'/>{checked}</w:checkBox></w:ffData>"
    instruction = "<w:r><w:instrText> FORMCHECKBOX </w:instrText></w:r>"
    parts = [field.format("begin", box), instruction, field.format("end", "")]
    paragraph = f"<w:p>{''.join(parts)}<w:r><w:t xml:space='preserve'> tight</w:t></w:r></w:p>"
    assert formats.docx(docx(paragraph)).text == f"{mark} tight"


def test_a_frameset_holds_no_text():
    page = b"<html><frameset><frame src=a.html><noframes>No frames.</noframes></frameset></html>"
    assert formats.html(page).text == ""
