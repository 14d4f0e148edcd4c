"""Paper items: their numbers equal what is computed by hand here, and they render whatever there
is.
"""

import csv
import json
import math
import xml.etree.ElementTree as ET

import pytest

from item_tables import check_cells, line, shown, table
from ragauge import registry
from ragauge.measure import predictions
from ragauge.report.figures import writing
from ragauge.report.figures.footer import footer
from ragauge.report.figures.writing import render, write_provenance
from ragauge.results import timing
from ragauge.results.cells import NO_SPREAD
from ragauge.results.runs import Runs
from ragauge.results.times import STATE_WORDS, LatencyTimes, Trial, TrialLoad
from synthetic_run import (
    DOCUMENT,
    MODEL,
    PREAMBLE,
    QUERY,
    TASK,
    specification,
    write_latency,
    write_meta,
    write_states,
    write_variant,
)
from tables import rows

ITEMS = registry.names("item")
# of methods on a model
OTHERS = ("cfic_", "piperag_", "study_", "dataset_")
SHORT = [item for item in ITEMS if not item.startswith(OTHERS)]
VALUES = ["published", "measured", "low", "high", "n", "p", "ratio", "note", "status", "source"]
# Weights that SmolLM2-135M multiplies a token by: in each of 30 layers q and o of 576 x 576, k and
# v of 576 x 192 and three matrices of the MLP of 576 x 1536, which is 3,538,944; then 49,152 x 576
# for the logits.
LAYERS_WEIGHTS = 30 * 3_538_944
OUTPUT_WEIGHTS = 49_152 * 576


def prompt_macs(new, past=0):
    """MACs of reading `new` tokens after `past`, logits of all: the closed form by hand, 30 layers
    of 9 heads of 64.
    """
    return new * (LAYERS_WEIGHTS + OUTPUT_WEIGHTS) + 2 * new * (past + new) * 30 * 9 * 64


@pytest.fixture
def small(tmp_path):
    """Naive and superposition on four questions, of which naive fails one."""
    write_variant(tmp_path, "plain", "naive", [True, False, False, None])
    write_variant(tmp_path, "sp", "superposition", [True, True, True, False], params={"top_k": 1})
    return tmp_path


def test_a_failed_question_counts_as_wrong_and_a_gain_is_paired(small):
    rows = table("superposition_table_1", small)
    naive = line(rows, method="naive", quantity="accuracy", model=MODEL)
    assert (naive["measured"], naive["n"]) == (0.25, 4)
    assert naive["low"] <= 0.25 <= naive["high"]
    assert naive["note"] == "1 of 4 questions failed, counted as wrong"
    gain = line(rows, method="naive", quantity="superposition_gain")
    assert gain["measured"] == pytest.approx(0.5)
    assert 0 < gain["p"] <= 1


def test_cycles_and_speedup_equal_the_closed_form(small):
    rows = table("superposition_table_1", small)
    naive = prompt_macs(PREAMBLE + 20 * DOCUMENT + QUERY + TASK)
    context = PREAMBLE + DOCUMENT
    superposition = prompt_macs(QUERY, context) + prompt_macs(TASK, context + QUERY)
    cell = line(rows, method="superposition", quantity="compute_cycles", model=MODEL)
    assert cell["measured"] == superposition
    assert line(rows, method="naive", quantity="compute_cycles", model=MODEL)["measured"] == naive
    speedup = line(rows, method="superposition", quantity="theoretical_speedup", model=MODEL)
    assert speedup["measured"] == pytest.approx(naive / superposition)
    assert speedup["n"] == 3  # the question that naive failed has no pair


def test_published_numbers_stand_beside_the_same_model_on_the_same_data_set(tmp_path):
    write_variant(tmp_path, "a", "naive", [False] * 3, model="mpt-7b-instruct")
    write_variant(
        tmp_path, "b", "superposition", [True, False], params={"top_k": 1}, model="mpt-7b-instruct"
    )
    write_variant(
        tmp_path, "b", "superposition", [True], dataset="wiki_single", model="mpt-7b-instruct"
    )
    rows = table("superposition_table_1", tmp_path)
    check_cells(
        rows,
        """
{method: superposition, dataset: nq_open}, {published: 0.465, measured: 0.5, ratio: 1.0752688}
{method: superposition, dataset: wiki_single}, {published: .nan}
{method: tfidf, dataset: nq_open}, {published: 0.333}
""",
        quantity="accuracy",
        model="mpt-7b-instruct",
    )


@pytest.mark.parametrize(
    ("dataset", "options", "is_papers"),
    rows("""
nq_open, {blank_line: true, shuffle: true, fold: test, joined: 1}, true
nq_open, {shuffle: false}, false
nq_open, {gold_position: 9}, false
nq_open, {documents: 5}, false
nq_open, {joined: 2}, false
musique, {blank_line: true, shuffle: true}, true
musique, {joined: 4}, false
"""),
)
def test_published_numbers_stand_beside_documents_in_the_papers_order_alone(
    dataset, options, is_papers, tmp_path
):
    path = write_variant(
        tmp_path, "naive", "naive", [True], dataset=dataset, model="mpt-7b-instruct"
    )
    made = specification("naive", {}, dataset, "mpt-7b-instruct")
    write_meta(path, made.model_copy(update={"dataset_options": options}))
    write_latency(tmp_path, {"naive": [2.0, 2.0]}, model="mpt-7b-instruct", device="cuda")
    item = "superposition_table_1" if dataset == "nq_open" else "superposition_table_2"
    rows = table(item, tmp_path)
    cell = line(rows, variant="naive", quantity="theoretical_speedup", model="mpt-7b-instruct")
    assert math.isfinite(cell["published"]) == is_papers
    if dataset == "nq_open":
        timed = line(
            table("superposition_table_7", tmp_path),
            variant="naive",
            quantity="measured_speedup_cuda",
        )
        assert math.isfinite(timed["published"]) == is_papers


def test_rankers_stand_at_their_best_top_k_and_say_so(tmp_path):
    write_variant(tmp_path, "x", "bm25", [False, False, True], params={"top_k": 1})
    write_variant(tmp_path, "y", "bm25", [True, False, True], params={"top_k": 4})
    cell = line(
        table("superposition_table_1", tmp_path), method="bm25", quantity="accuracy", model=MODEL
    )
    assert (cell["variant"], cell["top_k"]) == ("y", 4)
    assert "the best of 1, 4" in cell["note"]


def test_missing_variants_of_the_configuration_say_why(tmp_path):
    methods = {"naive": {}, "mine": {"method": "prompt_cache"}}
    config = {"run": "t", "models": {MODEL: {}}, "datasets": {"nq_open": {}}, "methods": methods}
    path = write_variant(tmp_path, "naive", "naive", [True])
    (path.parent / "mine.jsonl.partial").write_text("{}\n")
    rows = table("superposition_table_1", tmp_path, config)
    cell = line(rows, method="prompt_cache", quantity="accuracy", model=MODEL)
    assert cell["note"] == "not run: unfinished for variant mine"


def test_table_2_compares_the_rounds_that_the_papers_cycles_were_counted_with(
    tmp_path,
):
    for name, hops in (("text", "top_k"), ("released", "one")):
        params = {"top_k": 4, "iterations": 2, "hops": hops}
        write_variant(
            tmp_path,
            name,
            "superposition",
            [True],
            params=params,
            dataset="musique",
            model="mpt-7b-instruct",
        )
    check_cells(
        table("superposition_table_2", tmp_path),
        """
{variant: released}, {published: 0.111}
{variant: text}, {published: .nan}
""",
        quantity="f1",
    )


def test_kept_queries_count_one_by_one_where_one_document_answers_and_once_elsewhere(
    tmp_path,
):
    """As Table 5 (NQ-Open) and Table 2 (MuSiQue) of the paper count them."""
    for dataset in ("nq_open", "musique"):
        write_variant(
            tmp_path, "sp4", "superposition", [True], dataset=dataset, params={"top_k": 4}
        )
    keys = {"quantity": "compute_cycles", "model": MODEL, "top_k": 4}
    one_hop = line(table("superposition_table_5", tmp_path), **keys)["measured"]
    several = line(table("superposition_table_2", tmp_path), **keys)["measured"]
    assert one_hop > several
    assert one_hop - several == pytest.approx(3 * prompt_macs(QUERY, PREAMBLE + DOCUMENT))


def test_table_3_pairs_the_two_position_assignments(tmp_path):
    write_variant(
        tmp_path,
        "l",
        "superposition",
        [False, False, True, True],
        params={"positions": "left_aligned"},
    )
    write_variant(tmp_path, "e", "superposition", [True, True, True, False])
    rows = table("superposition_table_3", tmp_path)
    check_cells(
        rows,
        """
{model: smollm2-135m-instruct}, {positions: equilibrium − left_aligned, measured: 0.25, n: 4}
{model: mpt-7b-instruct}, {published: 0.117}
""",
        quantity="accuracy_difference",
    )
    gain = line(rows, quantity="accuracy_difference", model=MODEL)
    assert gain["low"] < 0.25 < gain["high"]
    assert 0.5 < gain["p"] <= 1


def test_table_4_sets_bayesian_against_every_other_saliency(tmp_path):
    for saliency, right in {"none": 0, "attention": 1, "query": 2, "bayesian": 3}.items():
        scores = [i < right for i in range(4)]
        params = {"saliency": saliency}
        write_variant(tmp_path, saliency[0], "superposition", scores, params=params)
    rows = table("superposition_table_4", tmp_path)
    differences = rows[(rows["quantity"] == "accuracy_difference") & (rows["model"] == MODEL)]
    assert list(differences["measured"]) == [0.75, 0.5, 0.25]


def test_attention_by_mean_and_by_sum_are_rows_of_their_own(tmp_path):
    for name, right, options in (
        ("sp", [True] * 4, {}),
        ("by_mean", [True, False] * 2, {"saliency": "attention"}),
        ("by_sum", [True] + [False] * 3, {"saliency": "attention", "reduce": "sum"}),
    ):
        write_variant(tmp_path, name, "superposition", right, params={"top_k": 1} | options)
    rows = table("superposition_table_4", tmp_path)
    check_cells(
        rows,
        """
{variant: by_mean, quantity: accuracy}, {measured: 0.5}
{variant: by_sum, quantity: accuracy}, {measured: 0.25}
{variant: sp − by_mean, quantity: accuracy_difference}, {measured: 0.5}
{variant: sp − by_sum, quantity: accuracy_difference}, {measured: 0.75}
""",
    )
    assert "attention, k=1, reduce sum" in shown("superposition_table_4", rows)
    small = writing.small_print("superposition_table_4", Runs(tmp_path), rows)
    for name, reduce in (("by_mean", "mean"), ("by_sum", "sum")):
        assert f"{name} ranks by the {reduce} of attention" in small
    assert "sp ranks by" not in small


def test_table_5_names_the_measured_speedup_after_its_device(small):
    write_latency(small, {"plain": [8.0, 8.0, 8.0], "sp": [1.0, 1.0, 1.0]})
    rows = table("superposition_table_5", small)
    keys = {"method": "superposition", "top_k": 1}
    # three equal trials have no interval
    check_cells(
        rows,
        """
{quantity: measured_speedup_cpu}, {measured: 8.0, n: 3, low: .nan, high: .nan, published: .nan}
{quantity: measured_speedup_cuda, model: mpt-7b-instruct}, {published: 6.46}
""",
        **keys,
    )
    assert "Invented CPU" in line(rows, quantity="measured_speedup_cpu", **keys)["note"]


def test_speedups_are_of_one_state_or_say_of_which_two(small):
    write_states(
        small,
        {
            "plain": {"nothing": [8.0] * 3, "set": [2.0] * 3},
            "sp": {"nothing": [10.0] * 3, "set": [1.0] * 3},
        },
        {"plain": 6.0, "sp": 7.0},
    )
    rows = table("superposition_table_5", small)
    found = {
        quantity: line(rows, quantity=quantity, method="superposition", top_k=1)
        for quantity in ("documents_speedup_cpu", "set_speedup_cpu", "measured_speedup_cpu")
    }
    assert [cell["measured"] for cell in found.values()] == [0.8, 2.0, 8.0]
    *single, papers = (cell["note"] for cell in found.values())
    assert [note.rpartition("question: ")[2].partition(";")[0] for note in single] == [
        "each document read",
        "exactly this list read",
    ]
    two = "as in the paper, of two states: sp: exactly this list read, plain: nothing read"
    assert two in papers
    prepared = line(rows, quantity="preparation_s", method="superposition", top_k=1)
    assert prepared["measured"] == 7.0
    figure = registry.module("item", "superposition_table_7").draw(
        table("superposition_table_7", small)
    )
    labels = " ".join(ax.get_xlabel() for ax in figure.axes)
    assert all(words in labels for words in ("each document read", "as in the paper"))


OF_OTHER_TIMES = {"documents_reuse"}  # its axis is the hit rate, and naive has nothing read


@pytest.mark.parametrize("item", sorted({*ITEMS} - OF_OTHER_TIMES))
def test_no_two_states_stand_side_by_side_unsaid(small, item):
    """Each time of the latency protocol names its state, one alone in a row, or says of which two."""
    both = {"nothing": [8.0] * 3, "set": [2.0] * 3}
    write_states(small, {"plain": both, "sp": both}, {"plain": 6.0, "sp": 7.0})
    rows = table(item, small)
    of_protocol = rows[(rows["source"] == "latency") & rows["measured"].notna()]
    if not len(of_protocol):
        return
    words = of_protocol["note"].str.extract(r"before the question: ([a-z ]+)")[0]
    assert words.notna().all()
    if "state" not in rows.columns:
        said = of_protocol["quantity"].str.partition("_")[0].map(STATE_WORDS)
        two = of_protocol["note"].str.contains(timing.LIKE_PAPERS)
        is_read = of_protocol["quantity"].str.startswith("preparation")
        assert len(set(words)) == 1 or ((said == words) | two | is_read).all()
        return
    assert (words == of_protocol["state"].map(STATE_WORDS)).all()
    figure = registry.module("item", item).draw(rows)
    titles = " ".join(ax.get_title(loc="left") for ax in figure.axes)
    assert {s for s, text in STATE_WORDS.items() if text in titles} == set(of_protocol["state"])


def test_a_refused_timing_gives_its_reason(small):
    write_latency(small, {"plain": [8.0], "sp": [1.0]}, refused="others kept the machine busy")
    check_cells(
        table("superposition_table_7", small),
        '{method: naive}, {measured: .nan, note: "timing refused: others kept the machine busy"}',
        quantity="measured_speedup_cpu",
    )


def test_disturbed_and_unclocked_trials_do_not_count():
    rows = [Trial(variant="plain", total_s=seconds) for seconds in (4.0, None)]
    rows.append(Trial(variant="plain", total_s=99.0, disturbed=True))
    assert LatencyTimes(rows=rows).seconds("plain") == [4.0]
    busy = LatencyTimes(rows=rows, load=TrialLoad(busy="other processes took 30%"))
    assert busy.seconds("plain") == [4.0, 99.0]
    assert timing.described(busy).endswith(
        "; other processes took 30%; before the question: each document read"
    )


def test_table_6_folds_what_was_not_run_from_the_trace(small):
    write_variant(small, "all", "superposition", [False] * 4, params={"path_pruning": False})
    rows = table("superposition_table_6", small)
    mine = rows[rows["model"] == MODEL]
    assert len(mine) == 8 * 4
    context = PREAMBLE + DOCUMENT
    query = prompt_macs(QUERY, context)
    task = prompt_macs(TASK, context + QUERY)
    offline = prompt_macs(PREAMBLE) + 20 * prompt_macs(DOCUMENT, PREAMBLE)
    switches = {"pruning": True, "quantity": "compute_cycles"}
    full = line(mine, caching=True, parallelism=True, **switches)
    assert (full["measured"], full["note"]) == (query + task, NO_SPREAD)
    slow = line(mine, caching=False, parallelism=False, **switches)
    assert slow["measured"] == offline + 20 * query + task
    accuracy = line(mine, caching=False, parallelism=True, pruning=True, quantity="accuracy")
    assert accuracy["measured"] == 0.75


def test_figure_5_starts_at_naive_and_ends_at_one_document_a_path(small):
    write_variant(small, "g4", "superposition", [True, True, False, False], params={"factor": 4})
    rows = table("superposition_figure_5", small)
    cells = {
        q: dict(zip(part["factor"], part["measured"], strict=True))
        for q, part in rows.groupby("quantity")
    }
    assert cells["accuracy"] == {"1": 0.25, "4": 0.5, "20": 0.75}
    keys = {"method": "superposition", "quantity": "theoretical_speedup", "model": MODEL}
    assert (
        cells["theoretical_speedup"]["20"]
        == line(table("superposition_table_1", small), **keys)["measured"]
    )


def test_figure_5_has_the_uncached_speedups_of_the_papers_models(tmp_path):
    (tmp_path / "predictions.json").write_text(json.dumps({"rows": [*predictions.figure_5()]}))
    rows = table("superposition_figure_5", tmp_path)
    mpt = rows[rows["model"] == "mpt-7b-instruct"]
    assert list(mpt["measured"]) == pytest.approx([1.01, 2.08, 4.06, 8.96, 14.8], rel=0.005)
    assert set(rows["source"]) == {"shape"}
    assert "no path caching" in shown("superposition_figure_5", rows)


def test_dataset_statistics_by_hand(tmp_path):
    # the last document has 10 tokens more in question 1
    write_variant(tmp_path, "naive", "naive", [True, True])
    rows = table("superposition_dataset_statistics", tmp_path)
    values = rows[rows["model"] == MODEL].set_index("quantity")["measured"]
    assert values["average_document_tokens"] == pytest.approx(DOCUMENT + 0.25)
    assert values["average_longest_document_tokens"] == pytest.approx(DOCUMENT + 5)
    assert values["average_left_align_gap_tokens"] == pytest.approx(4.75)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in which every item on short documents finds something to measure."""
    folder = tmp_path_factory.mktemp("whole")
    variants = rows("""
naive, naive, {}
sort, attention_sort, {}
cached, prompt_cache, {}
bm25_k1, bm25, {top_k: 1}
bm25_k2, bm25, {top_k: 2}
sp, superposition, {top_k: 1}
left, superposition, {top_k: 1, positions: left_aligned}
attention, superposition, {top_k: 1, saliency: attention}
unpruned, superposition, {path_pruning: false}
g4, superposition, {top_k: 1, factor: 4}
""")
    for dataset in ("nq_open", "musique"):
        for place, (name, method, options) in enumerate(variants):
            scores = [None if i == 5 else i > place % 4 for i in range(6)]
            write_variant(folder, name, method, scores, params=options, dataset=dataset)
    seconds = {name: [1.0 + place, 1.1 + place] for place, (name, *_) in enumerate(variants)}
    timed = {"variant": "sp", "computing_s": 4.0, "missed_s": 5.5, "loading_s": 0.5}
    cold = {"state": "cold", "rows": [timed | {"disturbed": False}]}
    write_latency(folder, seconds, documents=cold)
    return folder


@pytest.mark.parametrize(
    "item", [item for item in SHORT if item not in ("length", "load_curve", "reuse_stream")]
)
def test_every_item_shows_what_was_measured(item, whole):
    """On long documents `test_cfic` holds it, on pipelines `test_piperag`, under load `test_load`, on RULER
    `test_length`.
    """
    rows = table(item, whole)
    mine = rows[(rows["model"] == MODEL) & (rows["status"] == "measured")]
    assert len(mine)
    assert mine["measured"].notna().all()
    assert mine["source"].isin(["records", "latency"]).all()
    assert MODEL in shown(item, rows)


@pytest.mark.parametrize("item", SHORT)
def test_where_every_question_failed_items_say_so_and_draw(item, tmp_path):
    for dataset in ("nq_open", "musique"):
        write_variant(tmp_path, "a", "naive", [None, None], dataset=dataset)
    rows = table(item, tmp_path)
    mine = rows[rows["model"] == MODEL]
    assert set(mine["status"]) <= {"could_not_run"}
    assert mine["note"].ne("").all()
    assert shown(item, rows)


@pytest.mark.parametrize("item", ITEMS)
def test_an_empty_run_shows_published_numbers_alone(item, tmp_path):
    rows = table(item, tmp_path)
    assert [*rows.columns[-11:]] == ["quantity", *VALUES]
    assert set(rows["status"]) <= {"published_only"}
    assert rows["published"].notna().all()
    assert rows["measured"].isna().all()
    text = shown(item, rows)
    assert ("Nothing" in text or "No records" in text) if rows.empty else text


def test_rendering_twice_gives_the_same_bytes_and_svg_keeps_text(whole, tmp_path):
    first, second = (
        {
            path.suffix: path.read_bytes()
            for path in render("superposition_table_1", Runs(whole), tmp_path / name)
        }
        for name in ("a", "b")
    )
    assert first == second
    assert list(first) == [".csv", ".md", ".tex", ".svg", ".pdf", ".png"]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        f"superposition_table_1{kind}" for kind in first
    }
    assert all(MODEL in first[kind].decode() for kind in (".csv", ".md", ".tex", ".svg"))
    texts = [
        node.text for node in ET.fromstring(first[".svg"]).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "theoretical speedup" in texts
    assert b"CreationDate" not in first[".pdf"]


def test_the_footer_says_what_was_measured_where(small):
    runs = Runs(small)
    text = footer(runs, registry.module("item", "superposition_table_1").table(runs))
    for words in (
        f"{MODEL} (bfloat16)",
        "4 questions (a subset of 2,655)",
        "Invented CPU, 2 threads",
        "torch 2.13.0",
    ):
        assert words in text


def test_markdown_and_latex_escape_what_would_break_them(small):
    frame = table("superposition_table_1", small)
    tex = writing.latex(
        "superposition_table_1", frame, "A title: 50% & more.\n\nRest.", "100% of it_"
    )
    assert r"\toprule" in tex
    assert r"nq\_open" in tex
    assert r"100\% of it\_" in tex
    assert "| superposition | sp | 1 |" in writing.markdown(frame, "Title.", "foot")


def test_provenance_names_every_file_of_records_and_each_machine_once(small, tmp_path):
    written = json.loads(write_provenance(Runs(small), tmp_path / "report").read_text())
    assert [(a["variant"], a["questions"], a["failed"]) for a in written["answers"]] == [
        ("plain", 4, 1),
        ("sp", 4, 0),
    ]
    assert {a["machine"] for a in written["answers"]} == {0}
    assert len(written["machines"]) == 1
    assert "time" not in written["machines"][0]
    with open(tmp_path / "report/scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    assert [(row["metric"], len(row), bool(row["plain"] and row["sp"])) for row in scores] == [
        ("best_subspan_em", 6, True)
    ] * 4
