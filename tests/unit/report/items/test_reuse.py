"""The items on reuse of keys and values, from invented records."""

import math

import pytest

from ragauge.config.reads import VariantJob
from ragauge.report.figures import Axis, Lines
from ragauge.report.items.reuse import frontier, length
from ragauge.report.items.reuse import table as reuse_table
from ragauge.report.items.reuse._family import AT_FLOOR
from ragauge.results import states
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_latency, write_states, write_variant

RIGHT = [True] * 12
HALF = [True, False] * 6
NEVER = [False] * 12
ITEMS = {"table": reuse_table, "frontier": frontier, "length": length}
OFFLINE = [{"stage": "documents", "lengths": (100,), "past": (0,), "offline": True}]
AWARE = {"compressor": "snapkv", "inner": "superposition"}


@pytest.fixture
def small(tmp_path):
    """Full prefill in 8 seconds; cache_blend at two shares; a superposition that is as good as the
    larger of them.
    """
    write_variant(tmp_path, "naive", "naive", RIGHT, first_token_s=8.0)
    blends = ((0.16, HALF, 2.0), (0.5, RIGHT, 4.0))
    for share, correct, seconds in blends:
        params = {"recompute": share}
        write_variant(
            tmp_path, f"r{share}", "cache_blend", correct, params=params, first_token_s=seconds
        )
    # its positions depend on the set, so that in the default state its documents are waited for
    write_variant(tmp_path, "sp", "superposition", HALF, first_token_s=0.75, offline_s=0.25)
    write_variant(tmp_path, "oracle", "oracle", RIGHT, first_token_s=0.5)
    return tmp_path


def values(table, quantity):
    return table[table["quantity"] == quantity].set_index("variant")["measured"].to_dict()


def measured(folder):
    """The table without the papers' claims."""
    return reuse_table.table(Runs(folder)).query("variant != ''")


def shown(figure):
    """All text of a figure, titles included."""
    texts = [t.get_text() for ax in figure.axes for t in ax.texts]
    return "\n".join(texts + [ax.get_title(loc="left") for ax in figure.axes])


def test_a_curve_connects_variants_that_differ_in_the_knob_alone(small):
    write_variant(
        small, "keys", "cache_blend", HALF, params={"criterion": "key"}, first_token_s=2.0
    )
    table = frontier.table(Runs(small))
    rows = table.drop_duplicates("variant").set_index("variant")
    assert rows.loc["r0.16", "curve"] == rows.loc["r0.5", "curve"] == "cache_blend"
    assert rows.loc["keys", "curve"] == "cache_blend, criterion=key"
    assert (rows.loc["r0.5", "knob"], rows.loc["r0.5", "value"]) == ("recompute", 0.5)
    figure = frontier.draw(table)
    lines = [list(line.get_xdata()) for line in figure.axes[0].get_lines()]
    assert [2.0, 4.0] in lines
    assert {"0.16", "0.5"} <= set(shown(figure).split())


@pytest.mark.parametrize("option", [{"spacing": "corpus"}, {"positions": "left_aligned"}])
def test_superposition_stands_in_the_table_with_each_way_of_placing_documents(small, option):
    write_variant(small, "placed", "superposition", RIGHT, params=option, first_token_s=0.8)
    write_variant(small, "soft", "superposition", RIGHT, params={"path_temperature": 1.0})
    runs = Runs(small)
    assert "placed" in values(reuse_table.table(runs), "quality")
    assert "placed" in values(frontier.table(runs), "quality")
    assert "soft" not in values(reuse_table.table(runs), "quality")
    jobs = [
        VariantJob(
            "nq_open", MODEL, name, "superposition", {"top_k": 1, **changed}, changed, "single_hop"
        )
        for name, changed in (("placed", option), ("soft", {"path_temperature": 1.0}))
    ]
    for item in (reuse_table, frontier):
        assert [job.variant for job in item.READS.select(jobs)] == ["placed"]


def test_who_is_not_as_soon_and_as_good_is_off_the_frontier(small):
    table = frontier.table(Runs(small))
    assert frontier.draw(table).axes[0].get_xlabel() == "first token (s), answering run"
    chances = values(table, "frontier_probability")
    assert "oracle" not in chances  # a reference
    assert chances["sp"] == 1
    assert chances["r0.5"] > 0.99
    assert chances["naive"] < 0.001  # as good as r0.5, and later
    assert chances["r0.16"] < 0.001
    write_latency(small, {name: [6.0, 6.0] for name in ("naive", "r0.16", "r0.5", "sp", "oracle")})
    assert (
        frontier.draw(frontier.table(Runs(small))).axes[0].get_xlabel()
        == "first token (s), latency protocol"
    )


def test_a_variant_of_few_questions_neither_has_a_chance_nor_takes_questions_from_others(
    small,
):
    write_variant(small, "few", "superposition", [True], first_token_s=0.1, offline_s=0.0)
    table = frontier.table(Runs(small))
    chances = table[table["quantity"] == "frontier_probability"].set_index("variant")
    assert chances.loc["few", "note"] == "it has far fewer questions than others"
    assert set(chances.drop("few")["n"]) == {len(RIGHT)}
    stairs = [
        line.get_xdata()
        for line in frontier.draw(table).axes[0].get_lines()
        if line.get_linestyle() == "--"
    ]
    assert min(stairs[0]) == 1.0
    figures = (
        reuse_table.draw(measured(small)),
        Lines("first_token_s", Axis("s"), "quality", Axis("q"))(table),
    )
    # a mean of few stands with its number
    assert ["n = 1" in shown(figure) for figure in figures] == [True, True]


def test_seconds_are_the_protocols_where_it_timed_every_variant_of_the_table(small):
    totals = {"naive": [6.0, 6.0], "r0.16": [2.0, 2.0], "r0.5": [3.0, 3.0]}
    write_latency(small, totals)
    table = measured(small)
    # `sp` was not timed
    assert values(table, "first_token_speedup") == {"r0.16": 4, "r0.5": 2, "sp": 8}
    assert set(table[table["measured"].notna()]["source"]) == {"records"}
    by_state = {
        "naive": {"nothing": [6.0, 6.0]},
        "r0.16": {"documents": [2.0, 2.0]},
        "r0.5": {"documents": [3.0, 3.0]},
        "sp": {"set": [1.0, 1.0]},
    }
    usable = {"naive": "set", "r0.16": "documents", "r0.5": "documents", "sp": "set"}
    write_states(small, by_state, states=("documents", "set", "nothing"), usable=usable)
    table = measured(small)
    apart, together, nothing = (
        table[table["state"] == state] for state in ("documents", "set", "nothing")
    )
    found = values(apart, "first_token_speedup")
    assert math.isnan(found.pop("sp"))
    assert found == {"r0.16": 3, "r0.5": 2}
    assert math.isnan(values(together, "first_token_s")["naive"])
    assert values(together, "first_token_s")["sp"] == 0.5
    assert values(nothing, "first_token_s").pop("naive") == 3
    assert values(apart, "token_s")["naive"] == 0.75
    timed = table[table["source"] == "latency"]
    prepared = {"preparation_s", "preparation_bytes"}
    waited = {"first_token_s", "token_s", "first_token_speedup"}
    assert set(timed["quantity"]) == waited | prepared
    assert timed["note"].str.contains("medians of 3 trials").all()
    assert timed["note"].str.contains("before the question: ").all()
    write_latency(
        small,
        totals | {"sp": [1.0, 1.0]},
        refused="other processes took 9% of the machine's CPU time",
    )
    assert values(measured(small), "first_token_speedup")["sp"] == 8


def test_what_was_answered_side_by_side_and_not_timed_leaves_the_protocol_to_the_others(small):
    timed = {"naive": [6.0, 6.0], "r0.16": [2.0, 2.0], "r0.5": [3.0, 3.0], "sp": [1.0, 1.0]}
    write_latency(small, timed)
    write_variant(small, "untimed", "naive_reuse", RIGHT, first_token_s=None)
    table = measured(small)
    found = values(table[table["state"] == "documents"], "first_token_speedup")
    assert (found["r0.16"], found["r0.5"]) == (3, 2)
    assert math.isnan(found["untimed"])


def test_a_row_is_in_one_state_with_what_it_took_to_be_in_it(small):
    totals = {
        "naive": {"nothing": [6.0] * 2, "set": [2.0] * 2},
        "r0.16": {"documents": [2.0] * 2},
        "r0.5": {"documents": [3.0] * 2},
        "sp": {"nothing": [8.0] * 2, "set": [1.0] * 2},
        "oracle": {"nothing": [1.0] * 2},
    }
    write_states(small, totals, {"naive": 5.0, "r0.16": 4.0, "r0.5": 4.0, "sp": 7.0})
    table = measured(small)
    apart, together = (table[table["state"] == state] for state in ("documents", "set"))
    assert values(apart, "first_token_speedup") == {"r0.16": 3, "r0.5": 2, "sp": 0.75}
    assert values(together, "first_token_speedup") == pytest.approx(
        {"r0.16": 1, "r0.5": 2 / 3, "sp": 2}
    )
    assert values(apart, "preparation_s") == {"r0.16": 4, "r0.5": 4}
    assert values(together, "preparation_s") == {"naive": 5, "r0.16": 4, "r0.5": 4, "sp": 7}
    assert set(values(together, "preparation_bytes").values()) == {2e6}
    assert list(dict.fromkeys(table["state"])) == ["documents", "set"]
    plane = frontier.table(Runs(small))
    for state, first in (("documents", 4.0), ("set", 0.5)):
        assert values(plane[plane["state"] == state], "first_token_s")["sp"] == first
    titles = [ax.get_title(loc="left") for ax in frontier.draw(plane).axes]
    assert [title.partition("question: ")[2] for title in titles] == [
        "each document read",
        "exactly this list read",
    ]


def of_nq_open(path):
    """Make records of another label those of questions of NQ-Open."""
    meta = path.with_suffix(".meta.json")
    label = f'"dataset": "{path.parts[-3]}"'
    meta.write_text(meta.read_text().replace(label, '"dataset": "nq_open"'))


@pytest.fixture
def sized(tmp_path):
    """The same questions with 20 documents of 150 tokens, 10 of 300, and 5 of 150."""
    for label, documents, tokens in (("nq_open", 20, 150), ("of_2", 10, 300), ("fewer", 5, 150)):
        counts = {
            "preamble": 10,
            "documents": [tokens] * documents,
            "query": 12,
            "task": 8,
            "generated": 3,
        }
        for name, correct, seconds in (("naive", RIGHT, 8.0), ("epic", HALF, 8.0 / (tokens / 50))):
            fields = {"documents": documents, "tokens": counts, "first_token_s": seconds}
            of_nq_open(write_variant(tmp_path, name, name, correct, dataset=label, **fields))
    return tmp_path


def test_length_and_number_of_documents_are_those_of_the_records(sized):
    table = length.table(Runs(sized))
    epic = table[(table["variant"] == "epic") & (table["quantity"] == "first_token_speedup")]
    found = {(c["documents"], c["document_tokens"]): c["measured"] for c in epic.to_dict("records")}
    assert found == pytest.approx({(20, 150): 3, (10, 300): 6, (5, 150): 3})
    off = table[(table["variant"] == "epic") & (table["quantity"] == "difference")]
    assert (off["measured"] == -0.5).all()
    assert (off["low"] < -0.5).all()
    assert (off["p"] < 0.05).all()
    assert set(table["questions"]) == {"nq_open"}
    figure = length.draw(table)
    drawn = [
        sorted(
            {
                float(x)
                for line in ax.get_lines()
                if len(line.get_xdata()) > 1
                for x in line.get_xdata()
            }
        )
        for ax in figure.axes[2:]
    ]
    assert drawn == [[150, 300], [5, 20]]  # over length the same text, over number the same length


def test_times_are_those_of_the_very_documents(sized):
    """The same questions with fewer documents, or longer ones, do not take what the protocol timed."""
    write_latency(sized, {"naive": [20.0] * 3, "epic": [2.0] * 3})
    table = length.table(Runs(sized))
    epic = table[(table["variant"] == "epic") & (table["quantity"] == "first_token_speedup")]
    found = {
        c["dataset"]: (pytest.approx(c["measured"]), c["source"]) for c in epic.to_dict("records")
    }
    assert found == {"nq_open": (10, "latency"), "of_2": (6, "records"), "fewer": (3, "records")}


@pytest.mark.parametrize("item", sorted(ITEMS))
def test_at_the_floor_nothing_can_be_told(item, tmp_path):
    for label, documents in (("nq_open", 20), ("fewer", 5)):
        fields = {"dataset": label, "documents": documents, "first_token_s": 1.0}
        of_nq_open(write_variant(tmp_path, "naive", "naive", NEVER, **fields))
        for top_k in (1, 2):
            made = write_variant(
                tmp_path, f"k{top_k}", "superposition", NEVER, params={"top_k": top_k}, **fields
            )
            of_nq_open(made)
    table = ITEMS[item].table(Runs(tmp_path))
    judged = table[table["quantity"].isin(["quality", "difference", "frontier_probability"])]
    assert len(judged)
    assert judged["note"].str.contains(AT_FLOOR).all()
    if item != "table":
        assert AT_FLOOR in shown(ITEMS[item].draw(table))


def test_what_knows_the_question_is_waited_for_in_every_state(small):
    """A compressor that does prepares nothing that could be ready for another question."""
    for name, compressor in (("aware", "snapkv"), ("unaware", "knorm")):
        params = AWARE | {"compressor": compressor}
        fields = {"first_token_s": 1.0, "offline_s": 2.0, "trace": OFFLINE}
        write_variant(small, name, "compressed", HALF, params=params, **fields)
    waits = {
        v.name: [states.seconds(v, "first_token_s", state)["q0"] for state in ("documents", "set")]
        for v in Runs(small).run
        if v.method == "compressed"
    }
    assert waits == {"aware": [3.0, 3.0], "unaware": [3.0, 1.0]}  # around superposition
