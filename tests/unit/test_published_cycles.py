"""The columns "compute cycles" and "theoretical speedup" of Superposition Prompting, from the methods' own traces.

Every row of Tables 1, 2, 5 and 6 is predicted on a decoder of shapes alone under the `published` accounting and held
to 3% of what the paper prints; the rows beyond that are listed with their reason. A printed speedup has one decimal
(0.3 is anything from 0.25 to 0.35), so one that rounds to it agrees as well.
"""

import csv
from functools import cache
from importlib.resources import files

import pytest

from ragauge import costing, methods
from ragauge.cost import cycles, tokens
from ragauge.cost.flop import attention_macs, row_macs
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call

TABLES = (1, 2, 5, 6)
NEAR = 0.03
SWITCHES = {"path_pruning": "pruning", "path_caching": "caching", "path_parallelization": "parallelism"}

SHORTER = "bloomz-3b's naive cell implies documents 3% longer than its rows that read them one by one"
# The paper does not print top_k of Table 1's rankers. A row that equals one of Table 5 has its; OpenELM's, which Table
# 5 lacks, are those whose cycles fit: one document, and two for Contriever.
OPENELM_TOP_K = {"bm25": 1, "tfidf": 1, "contriever": 2}
EXCEPTIONS = {
    "table 2, bloomz-3b, superposition t=1 k=4": "3.1%: query and task are 44 whole tokens, where the cell has 42.6",
    "table 6, bloomz-3b, none": "3.2%: " + SHORTER,
    "table 6, bloomz-3b, pruning": "3.3%: " + SHORTER,
    "table 6, bloomz-3b, pruning, parallelism": "3.1%: " + SHORTER,
}


@cache
def _table(number):
    path = files("ragauge.paper") / "published" / f"superposition_table_{number}.csv"
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _label(number, row):
    if number == 6:
        return f"table 6, {row['model']}, " + (", ".join(n for n in SWITCHES.values() if row[n] == "True") or "none")
    settings = [f"t={row['iterations']}"] if row.get("iterations") else []
    settings += [f"k={row['top_k']}"] if row.get("top_k") else []
    return " ".join([f"table {number}, {row['model']}, {row['method']}", *settings])


def _options(number, row):
    if number == 6:
        return {option: row[column] == "True" for option, column in SWITCHES.items()}
    options = {key: int(row[key]) for key in ("top_k", "iterations") if row.get(key)}
    if row["method"] in OPENELM_TOP_K and "top_k" not in options:
        options["top_k"] = _table_5_top_k(row) or OPENELM_TOP_K[row["method"]]
    return options | ({"encoder": "contriever"} if row["method"] == "contriever" else {})


def _table_5_top_k(row):
    keys = ("model", "method", "compute_cycles")
    return next((int(r["top_k"]) for r in _table(5) if all(r[k] == row[k] for k in keys)), None)


def _predicted(number, row):
    name = {"contriever": "dense"}.get(row.get("method", "superposition"), row.get("method", "superposition"))
    method = methods.make(name, **_options(number, row))
    counts = "musique" if number == 2 else "nq_open"
    return costing.project(name, method, row["model"].lower(), counts, 1, "published", "bfloat16")


@pytest.fixture(scope="module")
def cells():
    """(label, quantity) -> (printed, predicted) of all rows."""
    found = {}
    for number in TABLES:
        for row in _table(number):
            report = _predicted(number, row)
            for quantity in ("compute_cycles", "theoretical_speedup"):
                found[_label(number, row), quantity] = float(row[quantity]), report[quantity]
    return found


def _agrees(quantity, printed, predicted):
    rounds = quantity == "theoretical_speedup" and round(predicted, 1) == printed
    return rounds or abs(predicted / printed - 1) <= NEAR


def test_all_cells_but_those_listed_are_within_three_percent(cells):
    far = {label for (label, quantity), values in cells.items() if not _agrees(quantity, *values)}
    assert far == set(EXCEPTIONS)


def test_at_least_95_percent_of_each_column_agree(cells):
    for quantity in ("compute_cycles", "theoretical_speedup"):
        agreeing = [_agrees(quantity, *values) for (_, q), values in cells.items() if q == quantity]
        assert len(agreeing) == 132
        assert sum(agreeing) / len(agreeing) >= 0.95


def test_the_others_are_off_by_little(cells):
    """Printed cycles have three digits; a speedup of 1.1 has two."""
    off = [
        b / a - 1 for (label, quantity), (a, b) in cells.items() if quantity == "compute_cycles" and label in EXCEPTIONS
    ]
    assert max(map(abs, off)) < 0.035


@pytest.mark.parametrize(
    ("number", "counts", "model", "entry"),
    [
        (1, "nq_open", "bloomz-3b", "nq_open.bloom"),
        (1, "nq_open", "OpenELM-3B-Instruct", "nq_open.llama"),
        (2, "musique", "bloomz-3b", "musique.bloom"),
        (2, "musique", "OpenELM-3B-Instruct", "musique.llama"),
    ],
)
def test_other_tokenizers_are_calibrated_from_one_naive_cell(number, counts, model, entry):
    shape = named(model.lower())
    naive = next(float(r["compute_cycles"]) for r in _table(number) if (r["model"], r["method"]) == (model, "naive"))
    assert tokens.calibrated(tokens.load(counts), shape, naive) == tokens.load(entry)
    assert tokens.load(counts, vocab=shape.vocab) == tokens.load(entry)


@pytest.mark.parametrize(("counts", "naive"), [("nq_open", 2.16e13), ("musique", 1.86e13)])
def test_the_base_counts_are_those_of_mpts_naive_cell(counts, naive):
    mpt = named("mpt-7b-instruct")
    assert tokens.load(counts, vocab=mpt.vocab).total == tokens.plain_tokens(mpt, naive)


def test_plain_tokens_inverts_the_cost_of_a_plain_prompt():
    shape = named("openelm-3b-instruct")
    prompt = cycles.with_all_logits([Call("prompt", (1234,), (0,))])
    assert tokens.plain_tokens(shape, cycles.compute_cycles(prompt, shape, "published")) == 1234


def test_attention_to_cached_tokens_counts_by_family():
    call = Call("task", (5,), (100,), logits=(5,))
    for model, times in {"bloomz-3b": 2, "mpt-7b-instruct": 0, "openelm-3b-instruct": 1}.items():
        shape = named(model)
        cached = attention_macs(shape, 5, 100) - attention_macs(shape, 5, 0)
        expected = row_macs(call, shape)[0] + (times - 1) * cached
        assert cycles.compute_cycles([call], shape, "published") == expected
        assert cycles.compute_cycles([call], shape, "critical_path") == row_macs(call, shape)[0]
