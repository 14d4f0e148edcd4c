"""The report in a browser: it says nothing on the console, its filters work, its numbers are those
of the CSVs.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import pytest

from json_lines import write_lines
from ragauge.config import loading
from ragauge.report.figures.writing import render
from ragauge.report.page import numbers
from ragauge.report.page import page as report_page
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_states, write_variant

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'> \u202eabc\x07 <b>bold</b>"
QUESTIONS = 60
METHODS = {
    "naive": {},
    "oracle": {},
    "bm25_k1": {"method": "bm25", "top_k": 1},
    "superposition_k1": {"method": "superposition", "top_k": 1, "positions": "left_aligned"},
    "superposition_k2": {"method": "superposition", "top_k": 2, "positions": "left_aligned"},
}
# questions right of each variant, and the seconds of its trials
MADE = {
    "naive": (24, [8.0, 8.2, 8.4]),
    "oracle": (54, [0.9, 1.0, 1.1]),
    "bm25_k1": (12, [0.4, 0.5, 0.6]),
    "superposition_k1": (30, [0.8, 0.9, 1.0]),
    "superposition_k2": (36, [1.8, 2.0, 2.2]),
}
OFFLINE_S = 10.0  # of superposition
STORED = ("superposition_k1", "superposition_k2")
# the seconds of MADE are in the default state; naive has its list cached in `set`
STATES = {
    name: {"documents": seconds, "nothing": [s + OFFLINE_S for s in seconds]}
    if name in STORED
    else {"nothing": seconds}
    for name, (_, seconds) in MADE.items()
}
STATES["naive"]["set"] = [0.2, 0.3, 0.4]
RECORDS = f"records/nq_open/{MODEL}"


def settings(methods=METHODS):
    data = {
        "run": "tried",
        "models": {MODEL: {}},
        "datasets": {"nq_open": {}},
        "methods": methods,
        "items": ["frontier"],
    }
    return loading.parse(data, "tried.yaml")


def edit(path, change):
    """Pass each record of a file, with its number, through a function."""
    records = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    write_lines(path, (change(i, record) for i, record in enumerate(records)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with times, one hostile and one failed question, and its report."""
    made = tmp_path_factory.mktemp("tried")
    for name, (right, _) in MADE.items():
        entry = {"method": name, **METHODS[name]}
        params = {key: value for key, value in entry.items() if key != "method"}
        correct = [i < right for i in range(QUESTIONS - 1)] + [None]
        path = write_variant(made / "results", name, entry["method"], correct, params=params)
        offline = OFFLINE_S if entry["method"] == "superposition" else 0.0
        edit(
            path,
            lambda i, r, offline=offline: {
                **r,
                "question": f"Question number {i}?",
                "offline_s": offline,
            },
        )
    hostile = {
        "question": HOSTILE,
        "prediction": HOSTILE,
        "answers": [HOSTILE],
        "saliency": [-1.5, None, -0.5],
    }
    edit(
        made / "results/answers/nq_open" / MODEL / "superposition_k1.jsonl",
        lambda i, r: {**r, **hostile} if i == 0 else r,
    )
    prepared = {"naive": 7.0, **dict.fromkeys(STORED, OFFLINE_S)}
    states = ("documents", "set", "nothing")
    write_states(made / "results", STATES, prepared, states=states)
    render("frontier", Runs(made / "results", settings()), made / "out")
    report_page.write(Runs(made / "results", settings()), made / "out")
    return made


@pytest.fixture
def page(browser, folder):
    """The report, freshly opened; at the end nothing stands on the console."""
    browser.get_log("browser")
    yield opened(browser, folder / "out")
    assert browser.get_log("browser") == []


def opened(browser, out):
    browser.get("about:blank")
    browser.get((out / "index.html").as_uri())
    return browser


def run(browser, script):
    return browser.execute_script(f"return {script}")


@contextmanager
def screen(browser, width, height, mobile=False):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def fill_in(browser, name, value):
    """Set a control as its user does."""
    browser.execute_script(
        "const control = document.getElementById(arguments[0]); control.value = arguments[1];"
        "control.dispatchEvent(new Event('input', {bubbles: true}));"
        "control.dispatchEvent(new Event('change', {bubbles: true}));",
        name,
        value,
    )


def wait(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(lambda b: run(b, script))


def verdicts(browser):
    rows = "[...document.querySelectorAll('#variants tbody tr')]"
    return dict(
        run(browser, f"{rows}.map(row => [row.dataset.variant, row.lastElementChild.textContent])")
    )


def open_records(browser, variant):
    browser.execute_script("location.hash = arguments[0]", f"#{RECORDS}/{variant}")
    wait(browser, f"document.getElementById('found').textContent.startsWith('{variant}:')")


def found(browser):
    return str(run(browser, "document.getElementById('found').textContent"))


def test_the_chooser_keeps_its_limits(page):
    fill_in(page, "target", 1.5)
    assert verdicts(page)["superposition_k1"] == "recommended"
    assert verdicts(page)["bm25_k1"] == "qualifies"
    assert verdicts(page)["superposition_k2"] == "2 s is over the target"
    assert verdicts(page)["oracle"].startswith("reference")
    fill_in(page, "target", 3)
    assert verdicts(page)["superposition_k2"] == "recommended"
    fill_in(page, "target", "")
    assert "over" not in " ".join(verdicts(page).values())
    fill_in(page, "target", 0.001)
    assert "recommended" not in verdicts(page).values()


def test_the_first_screen_recommends_what_the_command_prints(page, folder):
    [group] = numbers.groups(Runs(folder / "results", settings()))
    found = numbers.recommendation(group)
    assert run(page, "document.getElementById('recommended').textContent") == found.row["name"]
    named = "[...document.querySelectorAll('.rivals a')].map(a => a.textContent)"
    assert set(run(page, named)) == {row["name"] for row in found.tied}
    kind = "answering_total_s"
    fill_in(page, "kind", kind)
    for state in numbers.READ:
        fill_in(page, "state", state)
        cell = "document.querySelector('#variants tr[data-variant=superposition_k1] td:nth-child(3)').dataset.value"
        [stored] = [row for row in group["variants"] if row["name"] == "superposition_k1"]
        assert float(run(page, cell)) == pytest.approx(numbers.wait(stored, kind, state))


@pytest.mark.parametrize("width", [390, 1366])
def test_the_recommendation_is_on_the_first_screen(page, width):
    with screen(page, width, 844, mobile=width < 800):
        place = run(
            page, "document.getElementById('recommended').getBoundingClientRect().bottom + scrollY"
        )
        assert place < (844 if width < 800 else 2 * 844)
        assert run(page, "document.documentElement.scrollWidth") <= width
        open_records(page, "naive")
        assert run(page, "document.documentElement.scrollWidth") <= width


def test_every_number_on_the_screen_is_of_the_chosen_state(page):
    control = "document.getElementById('state')"
    assert run(page, f"{control}.value") == "documents"
    assert run(page, f"{control}.labels[0].firstChild.textContent").startswith(
        "Before the question"
    )
    options = run(page, f"[...{control}.options].map(option => option.textContent)")
    assert options == ["nothing", "each document", "exactly this list"]
    cell = "document.querySelector('#variants tr[data-variant={}] td:nth-child({})').dataset.value"
    shown = {
        "nothing": ({"naive": 8.2, "superposition_k1": 10.9}, {}),
        "documents": ({"naive": 8.2, "superposition_k1": 0.9}, {"superposition_k1": 10}),
        "set": ({"naive": 0.3, "superposition_k1": 0.9}, {"naive": 7, "superposition_k1": 10}),
    }
    for state, (waits, read) in shown.items():
        fill_in(page, "state", state)
        for name, seconds in waits.items():
            assert float(run(page, cell.format(name, 3))) == pytest.approx(seconds), (state, name)
            before = run(page, cell.format(name, 4))
            assert (before and float(before)) == read.get(name), (state, name)
            point = f"document.querySelector('.point[data-variant={name}]')"
            label = run(page, f"{point}.getAttribute('aria-label')")
            assert f", {seconds:g} s" in label, (state, name)
        words = {"nothing": "nothing", "documents": "each document", "set": "exactly this list"}
        for place in ("cost-note", "advice", "ranking"):
            text = run(page, f"document.getElementById('{place}').innerText")
            assert words[state] in text, (state, place)
            assert not any(f"{other} read" in text for other in {*words.values()} - {words[state]})
    fill_in(page, "state", "documents")
    fill_in(page, "target", 0.95)  # of these the best is superposition
    assert verdicts(page)["superposition_k1"] == "recommended"
    text = run(page, "document.getElementById('advice').innerText")
    assert "10 s and 2 MB of keys and values for a question's documents" in text


def test_the_chart_has_every_variant_and_keys_move_in_it(page):
    points = "[...document.querySelectorAll('.chart .point')]"
    assert set(run(page, f"{points}.map(p => p.dataset.variant)")) == set(METHODS)
    assert run(page, f"{points}.filter(p => p.getAttribute('tabindex') === '0').length") == 1
    labels = run(page, f"{points}.map(p => p.getAttribute('aria-label'))")
    assert any(
        re.match(r"naive: best EM subspan 0\.400 \[.*\], 8\.2 s; on the frontier", label)
        for label in labels
    )
    page.execute_script("document.querySelector('.chart .point[tabindex=\"0\"]').focus()")
    before = run(page, "document.activeElement.dataset.variant")
    press(page, "ArrowLeft")
    assert run(page, "document.activeElement.dataset.variant") not in (None, before)
    press(page, "Enter")
    wait(page, "document.getElementById('found').textContent.includes('questions')")


def press(browser, key):
    browser.execute_script(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))",
        key,
    )


def test_a_number_leads_to_its_records(page):
    page.execute_script("document.querySelector('table[data-item=frontier] td.n a').click()")
    wait(
        page, "document.getElementById('found').textContent.startsWith('naive: 60 of 60 questions')"
    )
    assert found(page) == "naive: 60 of 60 questions; mean score 0.400 over 60"
    assert run(page, "document.querySelectorAll('#records-table > tbody > tr').length") == 25
    page.execute_script("document.querySelector('#pager button:last-child').click()")
    assert "Page 2 of 3" in run(page, "document.getElementById('pager').textContent")


def test_filters_and_sorting_work(page):
    open_records(page, "superposition_k2")
    for outcome, count in {"right": 36, "wrong": 23, "failed": 1, "kept": 60, "all": 60}.items():
        fill_in(page, "records-outcome", outcome)
        expected = 59 if outcome == "kept" else count
        assert found(page).startswith(f"superposition_k2: {expected} of 60 questions"), outcome
    fill_in(page, "records-query", "NUMBER 7?")
    assert found(page) == "superposition_k2: 1 of 60 questions; mean score 1.000 over 1"
    fill_in(page, "records-query", "")
    page.execute_script(
        "[...document.querySelectorAll('.sort')].find(b => b.textContent === 'Score').click()"
    )
    first = "document.querySelector('#records-table tbody tr td[data-column=Score]').textContent"
    assert run(page, first) == "0"


def test_texts_of_data_sets_do_nothing(page):
    open_records(page, "superposition_k1")
    page.execute_script("document.querySelector('#records-table tbody button').click()")
    row = run(page, "document.querySelector('#records-table tbody tr').innerText")
    assert "<script>window.hacked=1</script>" in row
    assert "␇" in row
    assert run(page, "document.querySelectorAll('#records-table :is(script, img, b)').length") == 0
    assert run(page, "window.hacked") is None
    details = run(page, "document.querySelector('.details').innerText")
    assert "−1.5" in details
    assert "prepared" not in details
    assert re.search(r"query\s+online\s+20 in parallel", details)


def test_controls_have_names_and_tables_have_heads(page):
    open_records(page, "naive")
    unnamed = "[...document.querySelectorAll('input, select')].filter(c => !c.labels.length).length"
    assert run(page, unnamed) == 0
    headless = "[...document.querySelectorAll('table')].filter(t => !t.querySelector('th[scope=col]')).length"
    assert run(page, headless) == 0
    assert run(page, "[...document.querySelectorAll('img')].filter(i => !i.alt).length") == 0
    ids = run(page, "[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["nothing", "one point", "no cost"])
def test_pages_of_little_are_quiet(browser, tmp_path, kind):
    if kind != "nothing":
        path = write_variant(tmp_path / "results", "naive", "naive", [True])
        nothing = {"trace": [], "online_s": None, "first_token_s": None}
        edit(path, lambda i, r: {**r, **nothing} if kind == "no cost" else r)
    report_page.write(Runs(tmp_path / "results", settings({"naive": {}})), tmp_path / "out")
    browser.get_log("browser")
    opened(browser, tmp_path / "out")
    assert browser.get_log("browser") == []
    assert len(run(browser, "document.querySelectorAll('.point')")) == (
        1 if kind == "one point" else 0
    )
