"""A served model in tables, figures and the page: its numbers, and the mark that its times are
another stack's.
"""

import json
import math

import pytest

from json_lines import read_lines, write_lines
from ragauge.config.loading import parse
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.report.figures.footer import footer
from ragauge.report.items import frontier
from ragauge.report.page import numbers
from ragauge.report.page.problems import problems
from ragauge.results.runs import ELSEWHERE, Runs
from synthetic_run import MODEL, write_variant
from tables import cases

SERVED = {
    "prompt_tokens": 1000,
    "cached_tokens": 400,
    "new_tokens": 10,
    "token_s": [0.5, 0.6, 0.8],
    "attempts": 1,
    "concurrency": 1,
    "finish": "stop",
    "stack": "llama.cpp",
}
PRICE = {"prompt": 1.0, "cached": 0.5, "new": 10.0}


def config(**served):
    """One model here and the same behind a server."""
    models = {
        MODEL: {"source": "smollm2-135m-instruct"},
        "there": {"source": "openai:m", "methods": ["naive", "bm25"], "served": served},
    }
    variants = {"naive": {}, "bm25": {}, "superposition": {}}
    data = {
        "run": "r",
        "models": models,
        "datasets": {"nq_open": {}},
        "methods": variants,
        "items": ["frontier"],
    }
    return parse(data, "x.yaml")


@pytest.fixture
def runs(tmp_path):
    response = records.ServedResponse(**SERVED)
    for name in ("naive", "bm25"):
        write_variant(tmp_path, name, name, [True, False, True])
        path = write_variant(
            tmp_path, name, name, [True, True, False], model="there", served=response
        )
        meta = json.loads(records.meta_path(path).read_text())
        meta["specification"]["engine"] = {"name": "openai", "served": {}}
        records.meta_path(path).write_text(json.dumps(meta))
    return Runs(tmp_path, config(price=PRICE))


def cells_of(runs):
    """The frontier's lines of the served variant `naive`, by quantity."""
    table = frontier.table(runs)
    return table[(table["model"] == "there") & (table["variant"] == "naive")].set_index("quantity")


def test_the_frontier_has_the_servers_times_tokens_and_costs_with_their_mark(runs):
    cells = cells_of(runs)
    assert cells["measured"]["served_first_token_s"] == 0.5
    assert cells["measured"]["served_per_token_s"] == pytest.approx(0.3 / 9)
    assert cells["measured"]["cached_share"] == pytest.approx(0.4)
    assert cells["measured"]["cost_per_1000_questions"] == pytest.approx(0.6 + 0.2 + 0.1)
    for quantity in ("quality", "served_first_token_s", "served_per_token_s", "online_latency_s"):
        assert f"{ELSEWHERE}: llama.cpp" in cells["note"][quantity], quantity
    table = frontier.table(runs)
    here = table[table["model"] == MODEL]
    assert not here["note"].str.contains(ELSEWHERE).any()
    assert not here["quantity"].str.startswith("served").any()


def edited(runs, *served, **first):
    """The runs with other facts of the served variant `naive`: of its responses, and of its first
    record.
    """
    path = next(v.path for v in runs.variants if (v.model, v.name) == ("there", "naive"))
    lines = read_lines(path)
    for line, facts in zip(lines, served, strict=True):
        line["served"] |= facts
    lines[0] |= first
    write_lines(path, lines)
    return Runs(runs.folder, config(price=PRICE))


def test_a_hit_rate_is_by_tokens(runs):
    counts = [(1000, 0), (10, 10), (90, 90)]
    facts = [{"prompt_tokens": prompt, "cached_tokens": cached} for prompt, cached in counts]
    cells = cells_of(edited(runs, *facts))
    assert cells["measured"]["cached_share"] == pytest.approx(100 / 1100)


def test_a_speed_needs_the_servers_count(runs):
    bundled = {"token_s": [0.5, 0.7], "new_tokens": 5}
    alone = {"token_s": [0.5, 0.6, 0.7], "new_tokens": 3}
    ended = {**alone, "new_tokens": 4}  # by a token without text
    cells = cells_of(edited(runs, bundled, alone, ended))
    assert cells["measured"]["served_per_token_s"] == pytest.approx(0.1)
    assert "several tokens in one event" in cells["note"]["served_per_token_s"]
    blank = {"token_s": [], "new_tokens": 9}  # nothing but white space
    cells = cells_of(edited(runs, alone, alone, blank))
    assert cells["measured"]["served_per_token_s"] == pytest.approx(0.1)
    cells = cells_of(edited(runs, *[{**alone, "new_tokens": None}] * 3))
    for quantity in ("served_per_token_s", "cost_per_1000_questions"):
        assert math.isnan(cells["measured"][quantity])
        assert "the server does not count tokens" in cells["note"][quantity]


def test_a_response_without_an_answer_is_wrong_and_its_thoughts_are_timed_counted_and_paid(
    runs,
):
    thoughts = {"thought_tokens": 6, "thought_tokens_source": "pieces"}
    thoughts["remarks"] = ["without stream_options"]
    reason = "unfinished: all 10 new tokens were thoughts"
    again = edited(
        runs,
        *(thoughts | {"first_answer_s": answer_s} for answer_s in (0.6, 0.8, None)),
        status="failed",
        reason=reason,
        prediction="",  # was right
    )
    cells = cells_of(again)
    assert cells["measured"]["quality"] == pytest.approx(1 / 3)
    assert "1 of 3 questions failed, counted as wrong" in cells["note"]["quality"]
    assert cells["measured"]["served_first_answer_s"] == pytest.approx(0.7)
    assert cells["measured"]["thought_tokens"] == 6
    assert "counted by pieces" in cells["note"]["thought_tokens"]
    assert "without stream_options" in cells["note"]["served_first_token_s"]
    assert cells["measured"]["cost_per_1000_questions"] == pytest.approx(0.6 + 0.2 + 0.1)
    assert any(
        "the first: unfinished: all 10 new tokens" in problem.why for problem in problems(again)
    )


def test_without_a_price_or_a_count_the_table_says_why_there_is_no_number(runs):
    table = frontier.table(Runs(runs.folder, config()))
    cost = table[(table["model"] == "there") & (table["quantity"] == "cost_per_1000_questions")]
    assert cost["measured"].isna().all()
    assert cost["note"].str.contains("served.price").all()


def test_a_served_model_has_a_panel_of_its_own(runs):
    panels = {
        panel.get_title(loc="left").partition("\n")[0]: len(panel.lines)
        for panel in frontier.draw(frontier.table(runs)).axes
    }
    assert panels.keys() == {MODEL, "there, another stack"}
    assert min(panels.values()) > 0


def test_small_print_and_page_name_the_stack(runs):
    small = footer(runs, frontier.table(runs))
    assert f"there ({ELSEWHERE}: llama.cpp)" in small
    assert "a server (llama.cpp), requests from" in small
    by_model = {group["model"]: group for group in numbers.groups(runs)}
    assert by_model["there"]["stack"] == "llama.cpp"
    assert (by_model["there"]["cached"], by_model[MODEL]["cached"]) == (
        "40% (bm25) to 40% (naive)",
        None,
    )
    assert by_model[MODEL]["stack"] is None


def test_a_served_model_has_no_files_and_its_answers_outlive_a_change_of_price():
    class Labels:
        dataset = "nq_open"
        model = "there"
        variant = "naive"

    plain = Plan(config())
    priced = Plan(config(price=PRICE, environment="OTHER", concurrency=4))
    assert plain.answers.models(Labels) == []
    assert plain.answers.specification(Labels) == priced.answers.specification(Labels)
    assert plain.answers.specification(Labels) != Plan(
        config(body={"seed": 1})
    ).answers.specification(Labels)
    counted = Plan(config(tokenizer="smollm2-135m-instruct"))
    assert counted.answers.models(Labels) == ["resources/assets/smollm2-135m-instruct.json"]


@pytest.mark.parametrize(
    ("model", "message"),
    cases(r"""
{source: 'openai:m', dtype: bfloat16} -> models\.x\.dtype: 'bfloat16': a served model runs as its
{source: 'openai:m', engine: torch} -> models\.x\.engine: 'torch' does not run 'openai:m'
{source: smollm2-135m-instruct, engine: openai} -> models\.x\.engine: 'openai' does not run 'smollm2
{source: smollm2-135m-instruct, served: {}} -> models\.x\.served: only valid for models behind a serv
{source: 'openai:'} -> models\.x\.source: openai: must be followed by the model's name
{source: 'openai:m', served: {environment: open ai}} -> models\.x\.served\.environment:
{source: 'openai:m', served: {tokenizer: nobody}} -> models\.x\.served\.tokenizer: unknown model
"""),
)
def test_what_a_served_model_cannot_have_is_named(model, message):
    data = {
        "run": "r",
        "models": {"x": model},
        "datasets": {"nq_open": {}},
        "methods": {"naive": {}},
    }
    with pytest.raises(UserError, match=message):
        parse(data, "x.yaml")
