"""The Wikipedia sample: reading a MediaWiki export, cleaning wikitext, cutting passages."""

import bz2

import pytest

from ragauge.datasets.base.wikipedia import (
    LONG_CHARACTERS,
    PASSAGE_WORDS,
    Article,
    Section,
    clean_sections,
    cut_text,
    read_articles,
)
from ragauge.errors import UserError

PAGE = "<page><title>{title}</title><ns>{ns}</ns>{extra}<revision><text>{text}</text></revision></page>"
LONG = "The town lies on a river. " * (LONG_CHARACTERS // 20)


def export(*pages, head=""):
    return f'{head}<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">{"".join(pages)}</mediawiki>'.encode()


def page(title, text=LONG, ns=0, extra=""):
    return PAGE.format(title=title, ns=ns, extra=extra, text=text)


def written(folder, xml):
    path = folder / "export.xml.bz2"
    path.write_bytes(bz2.compress(xml))
    return path


def clean(wikitext):
    (section,) = clean_sections(wikitext)
    return section.text


def test_only_long_articles_are_read(tmp_path):
    pages = [
        page("Kept &amp; long"),
        page("Stub", "A stub."),
        page("Redirect", extra='<redirect title="Kept" />'),
        page("Talk:Kept", ns=1),
    ]
    path = written(tmp_path, export(*pages))
    assert [article.title for article in read_articles(path)] == ["Kept & long"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_newest_revision_of_a_history_is_read(tmp_path, order):
    revisions = [
        f"<revision><timestamp>{year}-01-01T00:00:00Z</timestamp><text>Of {year}. {LONG}</text></revision>"
        for year in (2003, 2011, 2024)
    ]
    history = "".join(revisions[number] for number in order)
    path = written(tmp_path, export(f"<page><title>T</title><ns>0</ns>{history}</page>"))
    [article] = read_articles(path)
    assert article.sections[0].text.startswith("Of 2024.")


@pytest.mark.parametrize("content", [b"no archive at all", None])
def test_a_file_that_is_no_archive_is_named(tmp_path, content):
    path = tmp_path / "export.xml.bz2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"export\.xml\.bz2: cannot be read"):
        list(read_articles(path))


def test_entities_cannot_be_defined(tmp_path):
    head = '<!DOCTYPE mediawiki [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    with pytest.raises(UserError, match="document type"):
        list(read_articles(written(tmp_path, export(page("Town", "&b;"), head=head))))


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("It is {{convert|5|km|mi}} long.", "It is 5 km long."),
        ("{{Infobox|a={{lang|fr|été}}|b={{small|{{nowrap|x}}}}}}The town.", "The town."),
        ("A {{nowrap|{{lang|de|schöne}} Stadt}} by the river.", "A schöne Stadt by the river."),
        ("Called ({{IPAc-en|t|aʊ|n}}; {{lang-de|Stadt}}) by all.", "Called (Stadt) by all."),
        ("Called ({{IPAc-en|t}}) by all.", "Called by all."),
        ("Old<ref name=a>A {{cite|b}} [[c]].</ref> town<ref name=a />.", "Old town."),
        ("{| class=wikitable\n! a\n|-\n| {{b}} || {|\n| c\n|}\n|}\nThe town.", "The town."),
        ("[[File:A.jpg|thumb|A [[town]] of ''old'']]The town.", "The town."),
        ("The [[town|old town]] and [[village]]s.[[Category:Towns]]", "The old town and villages."),
        ("'''The''' ''town'''s mayor<!-- who? -->.", "The towns mayor."),
        ("One&nbsp;&ndash;&nbsp;two 中文 naïve.", "One – two 中文 naïve."),
        ("* one\n* two\n: three", "one\ntwo\nthree"),
        (
            "See [http://a.b the page] <span style='display: none'>hidden</span>now.",
            "See the page now.",
        ),
        ("The town<ref>never closed. It goes on.", "The town"),
    ],
)
def test_wikitext_is_cleaned(wikitext, text):
    assert clean(wikitext) == text


def test_sections_keep_their_headings_and_apparatus_is_dropped():
    wikitext = "Lead.\n== ''Early'' days ==\nOld.\n=== Wars ===\n\n== See also ==\n* [[Town]]\n== References ==\nx"
    assert list(clean_sections(wikitext)) == [Section("", "Lead."), Section("Early days", "Old.")]


def test_an_unclosed_tag_spoils_its_own_section_alone():
    assert [s.heading for s in clean_sections("== One ==\nA<ref>b ''c\n== Two ==\nD")] == [
        "One",
        "Two",
    ]


def test_passages_are_of_like_length_and_lose_no_word():
    text = " ".join(f"Sentence {n} has some seven words here." for n in range(100))
    pieces = cut_text(text)
    assert " ".join(pieces) == text
    assert len(pieces) == round(len(text.split()) / PASSAGE_WORDS)
    assert all(abs(len(piece.split()) - PASSAGE_WORDS) < 10 for piece in pieces)
    assert all(piece.startswith("Sentence") for piece in pieces)


def test_a_long_list_is_cut_between_words():
    words = [f"w{n}" for n in range(950)]
    pieces = cut_text(" ".join(words))
    assert [word for piece in pieces for word in piece.split()] == words
    assert max(len(piece.split()) for piece in pieces) <= 2 * PASSAGE_WORDS


@pytest.mark.parametrize("text", ["", " \n "])
def test_nothing_gives_no_passage(text):
    assert cut_text(text) == []


def test_abbreviations_end_no_sentence():
    text = "It was led by Dr. Smith and J. R. Jones, c. 1900. " * 20
    assert all(piece.endswith("1900.") for piece in cut_text(text.strip(), words=20))


def test_remnants_make_no_passage():
    article = Article("Town", (Section("", "One two three."), Section("Days", "word " * 12)))
    assert [passage.title for passage in article.passages()] == ["Town: Days"]
