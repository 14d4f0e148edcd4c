"""The report's page: it is made from whatever there is, says what is missing, and no text of a data
set gets loose.
"""

import base64
import gzip
import hashlib
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean

import pytest
import yaml

from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.report.figures.writing import render
from ragauge.report.page import blocks, page
from ragauge.report.page.problems import problems
from ragauge.report.page.rendered import by_paper
from ragauge.results.runs import Runs
from ragauge.results.stats import doubts, frontier_probability
from synthetic_run import MODEL, write_latency, write_states, write_variant
from workflow_folder import METHODS

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\u202e\x07\u2028&amp; -->"
ITEMS = ["frontier", "superposition_table_1"]


class Elements(HTMLParser):
    """The elements of a page: (name, attributes), and the text of each script."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.scripts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def payload(self):
        place = [script.get("id") for script in self.named("script")].index("payload")
        return dict(json.loads(self.scripts[place]))


def settings(**more):
    data = {
        "run": "small",
        "models": {MODEL: {}},
        "datasets": {"nq_open": {}},
        "methods": METHODS,
        "items": ITEMS,
    }
    return loading.parse({**data, **more}, "small.yaml")


def fill(folder):
    write_variant(folder, "naive", "naive", [False, False, True, False, None, False])
    write_variant(
        folder, "bm25_k1", "bm25", [True, False, True, False, False, False], params={"top_k": 1}
    )
    right = [True, True, True, False, True, False]
    write_variant(folder, "superposition_k1", "superposition", right, params={"top_k": 1})


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """A run of three variants on six questions, without a latency file, and its rendered items."""
    folder = tmp_path_factory.mktemp("rendered")
    fill(folder / "results")
    for item in ITEMS:
        render(item, Runs(folder / "results", settings()), folder / "out")
    return folder


@pytest.fixture
def small(rendered, tmp_path):
    return shutil.copytree(rendered / "results", tmp_path / "results")


@pytest.fixture
def out(rendered, tmp_path):
    return shutil.copytree(rendered / "out", tmp_path / "out")


def made(results, out):
    """The page of a run."""
    return page.write(Runs(results, settings()), out).read_text(encoding="utf-8")


def first_group(results, folder):
    return Elements(made(results, folder / "out")).payload["groups"][0]


def write_question(path, change):
    """Change fields of a file's first record."""
    first, *others = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([json.dumps({**json.loads(first), **change}).encode(), *others]))


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_nothing_is_fetched_and_the_page_is_the_same_every_time(small, out):
    text = made(small, out)
    assert made(small, out) == text
    elements = Elements(text)
    sources = [str(a["src"]) for _, a in elements.found if "src" in a]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not [name for name in ("link", "iframe", "base") if elements.named(name)]
    assert not [a["href"] for a in elements.named("a") if re.match(r"[a-z]+:|//", str(a["href"]))]


def test_only_the_pages_own_scripts_may_run(small, out):
    elements = Elements(made(small, out))
    policy = next(str(m["content"]) for m in elements.named("meta") if m.get("http-equiv"))
    running = [
        t
        for a, t in zip(elements.named("script"), elements.scripts, strict=True)
        if "type" not in a
    ]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'"
        for t in running
    ]
    assert len(hashes) == 2
    assert f"script-src {' '.join(hashes)};" in policy
    assert "default-src 'none'" in policy


def test_texts_of_data_sets_stay_text(small, out):
    harmless = len(Elements(made(small, out)).found)
    hostile = {"question": HOSTILE, "answers": [HOSTILE], "prediction": HOSTILE, "key": HOSTILE}
    write_question(small / "answers/nq_open" / MODEL / "bm25_k1.jsonl", hostile)
    failed = {"status": "failed", "reason": HOSTILE, "key": "q0"}
    write_question(small / "answers/nq_open" / MODEL / "naive.jsonl", failed)
    page = made(small, out)
    elements = Elements(page)
    assert "window.hacked = 1</script>" not in page
    # the reason of the failed question, among the doubts
    assert "window.hacked = 1&lt;/script&gt;" in page
    assert "\x07" not in page
    assert abs(len(elements.found) - harmless) < 20  # a row or two more, and no element of the text
    assert next(s for s in elements.named("script") if "id" in s) == {
        "type": "application/json",
        "id": "payload",
    }


def test_json_cannot_end_its_element():
    text = page.script_json({"a": HOSTILE, "b": [math.nan, -math.inf, 1.5], "c": "\ud800"})
    assert not re.search("[<>&\u2028]", text)
    assert (json.loads(text)["a"], json.loads(text)["b"]) == (HOSTILE, [None, None, 1.5])


def test_control_characters_are_shown_as_pictures():
    assert page.shown("a\x00b\x1bc\x7f\n\t") == "a␀b␛c␡\n\t"
    assert page.shown({"a": math.nan}) == '{\n "a": null\n}'
    assert str(page.with_code("`x<y` & z")) == "<code>x&lt;y</code> &amp; z"


def test_latency_of_the_protocol_comes_first(small, tmp_path):
    totals = {
        "naive": {"nothing": [2.0, 2.2, 2.1], "set": [1.0] * 3},
        "superposition_k1": {"nothing": [3.0] * 3, "set": [0.5, 0.4, 0.6]},
    }
    write_states(small, totals)
    group = first_group(small, tmp_path)
    assert group["cost"] == "total_s"
    assert group["untimed"] is None
    costs = {v["name"]: v["costs"]["total_s"] for v in group["variants"]}
    shown = {state: entry["online"] for state, entry in costs["superposition_k1"].items()}
    assert shown == {"nothing": 3.0, "documents": 3.0, "set": 0.5}
    assert costs["bm25_k1"] == {}


def test_without_latency_the_seconds_of_the_answers_stand_in(small, tmp_path):
    group = first_group(small, tmp_path)
    assert group["cost"] == "answering_total_s"
    assert group["costs"][-1] == "compute_cycles"
    assert group["untimed"] == f"there is no latency file of {MODEL}"
    write_latency(small, {"naive": [1.0]}, refused="other processes")
    group = first_group(small, tmp_path)
    assert group["cost"] == "answering_total_s"
    assert "was refused: other processes" in group["untimed"]


def test_a_block_holds_the_records(small, tmp_path):
    (small / "data").mkdir()
    documents = [{"title": "A", "text": "x"}, {"title": "", "text": "b" * 100}]
    example = {"key": "q0", "question": "?", "documents": documents, "answers": ["x"], "gold": [0]}
    (small / "data" / "nq_open.jsonl").write_text(json.dumps(example) + "\n")
    loaded = Call("documents", (100,), (0,), offline=True, seconds=2.0, loading_s=0.0).to_json()
    write_question(small / "answers/nq_open" / MODEL / "bm25_k1.jsonl", {"trace": [loaded]})
    elements = Elements(made(small, tmp_path / "out"))
    texts = {
        str(a.get("id")): t for a, t in zip(elements.named("script"), elements.scripts, strict=True)
    }
    block = unpacked(texts[f"records/nq_open/{MODEL}/naive"])
    assert tuple(block) == blocks.FIELDS
    assert block["score"] == [0, 0, 1, 0, 0, 0]
    assert block["status"][4] == "failed"
    assert block["trace"][0] == [["prompt", False, False, 1, 2030, 0, 1, None, False]]
    cached = unpacked(texts[f"records/nq_open/{MODEL}/bm25_k1"])["trace"][0]
    assert cached == [["documents", True, False, 1, 100, 0, 1, 2.0, True]]
    assert block["tokens"][0]["documents"] == 2000
    assert unpacked(texts["documents/nq_open"]) == {"q0": ["A", "b" * 80 + "…"]}
    assert blocks.shortened("x" * 3500) == "x" * 1000 + "… (2,500 more characters in the record)"


def test_what_lacks_is_named_with_its_rule(small, tmp_path):
    answers = small / "answers/nq_open" / MODEL
    (answers / "bm25_k1.meta.json").unlink()
    write_variant(small, "stranger", "bm25", [True, False])
    (answers / "empty.jsonl").write_text("")
    write_latency(small, {"naive": [1.0]}, model="refused", refused="other processes")
    made(small, tmp_path / "out")
    latency = {"methods": ["naive"], "dataset": "nq_open"}
    methods = METHODS | {"empty": {"method": "naive"}}
    found = problems(Runs(small, settings(latency=latency, methods=methods)))
    why_of = {(Path(problem.path).name, problem.rule): problem.why for problem in found}
    assert why_of["naive.jsonl", "answers"].startswith(
        "1 of 6 questions failed, counted as wrong; the first: too long"
    )
    assert "method and machine are unknown" in why_of["bm25_k1.jsonl", "answers"]
    assert why_of["stranger.jsonl", "answers"] == "not in the configuration"
    assert why_of["empty.jsonl", "answers"] == "holds no record"
    assert why_of[f"{MODEL}.json", "latency"] == "no such file"
    assert why_of["refused.json", "latency"] == "refused: other processes"


@pytest.mark.parametrize(("labels", "missing"), [([], 1), (["a"], 0)])
def test_a_report_says_that_no_answer_is_known(tmp_path, labels, missing):
    write_variant(tmp_path, "naive", "naive", [True, False, True], dataset="study", answers=labels)
    found = [
        problem for problem in problems(Runs(tmp_path)) if problem.what == "Known answers of study"
    ]
    assert [problem.why.partition(":")[0] for problem in found] == ["no question has one"] * missing


def test_a_damaged_file_is_named(small, out):
    answers = small / "answers/nq_open" / MODEL / "naive.jsonl"
    whole = answers.read_bytes()
    write_question(answers, {"trace": [{"span": 1}]})
    with pytest.raises(UserError, match=r"naive\.jsonl: record .*: a call of a model: stage"):
        made(small, out)
    answers.write_bytes(whole)
    (out / "frontier.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"frontier\.csv: not a table"):
        made(small, out)


def test_numbers_that_are_none_leave_their_cells_empty(small, out):
    header = "model,dataset,method,variant,top_k,quantity,published,measured,low,high,n,p,ratio,note,status,source"
    row = f"{MODEL},nq_open,naive,naive,,quality,inf,nan,-inf,x,,,,<b>odd</b>,measured,records"
    (out / "frontier.csv").write_text(f"{header}\n{row}\n")
    page = made(small, out)
    assert "&lt;b&gt;odd&lt;/b&gt;" in page
    assert "inf<" not in page


def test_every_measured_number_leads_to_its_records(small, out):
    runs = Runs(small, settings())
    table = by_paper(runs, out)["All papers"][0]
    assert table.name == "frontier"
    place = [column.name for column in table.columns].index("quality")
    assert [row[place].records for row in table.rows] == [
        f"nq_open/{MODEL}/{name}" for name in METHODS
    ]
    assert table.files == ["csv", "md", "tex", "svg", "pdf", "png"]
    # about no paper
    assert [*by_paper(Runs(small, settings(items=["frontier"])), out)] == ["Tables and figures"]


def test_the_command_writes_the_page(small, tmp_path, capsys):
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(settings().model_dump(exclude_none=True)))
    arguments = ["report", "page", "--config", str(file), "--results", str(small), "--out"]
    assert main([*arguments, str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "index.html")
    (tmp_path / "taken").write_text("")
    assert main([*arguments, str(tmp_path / "taken" / "out")]) == 2
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
@pytest.mark.parametrize("questions", [3, 6])
def test_the_page_has_the_probabilities_of_the_frontier(root, questions):
    code = (root / "src/ragauge/report/page/frontier.js").read_text(encoding="utf-8")
    functions = re.findall(
        r"^(?:const equal = .+?;|function (?:standings|dominates)\(.+?^})$",
        code,
        re.DOTALL | re.MULTILINE,
    )
    scores = [[0.0] * questions, [1.0] * questions, [0.0] * questions]
    doubt = doubts(scores)
    points = [
        {
            "cost": cost,
            "variant": {
                "name": str(cost),
                "resampled": [mean(scores[i])] * 9,
                "pairs": {str(j): {"doubt": doubt[i, j]} for j in range(3)},
            },
        }
        for i, cost in enumerate(range(3))
    ]
    script = "const payload = { resamples: 9 };\n" + "\n".join(functions)
    script += f"\nconsole.log(JSON.stringify(standings({json.dumps(points)})))"
    shown = json.loads(
        subprocess.run(["node", "-e", script], capture_output=True, check=True).stdout
    )
    expected = frontier_probability(range(3), scores)
    assert [standing["probability"] for standing in shown] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("questions", "naive", "without", "reason"),
    [
        (3, 3, 0, "the variants share 3 questions; at least 4 are needed"),
        # four equal differences have p = 0.125, six 0.03
        (4, 4, 0, "4 questions are too few: no variant is better than answers without documents"),
        (6, 6, 0, None),
        (
            40,
            2,
            0,
            f"the model {MODEL} is too weak to compare methods: it is right on 5.0% of the questions, less",
        ),
        (
            40,
            12,
            10,
            "40 questions are too few: no variant is better than answers without documents",
        ),
        (60, 20, 18, "no variant is better than answers without documents"),
        (40, 30, 4, None),
    ],
)
def test_a_recommendation_is_withheld_where_numbers_tell_nothing(
    tmp_path, questions, naive, without, reason
):
    right = {"naive": naive, "bm25_k1": without, "closed_book": without}
    for name, count in right.items():
        method = name.removesuffix("_k1")
        params = {"top_k": 1} if method == "bm25" else {}
        correct = [(7 * i) % questions < count for i in range(questions)]
        write_variant(tmp_path, name, method, correct, params=params)
    methods = {**METHODS, "closed_book": {}}
    [group] = Elements(
        page.page(Runs(tmp_path, settings(methods=methods)), tmp_path / "out")
    ).payload["groups"]
    assert group["withheld"] is None if reason is None else group["withheld"].startswith(reason)
    assert (group["provisional"] or "").startswith(f"{questions} questions") == (questions < 50)
