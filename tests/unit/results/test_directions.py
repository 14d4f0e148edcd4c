"""Verdicts on orderings, by the intervals of one row or of two."""

import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.results.stats import SHARE, paired_test

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "reports"))
module = importlib.import_module("directions")
directions = module.directions

TABLE = """method,quantity,measured,low,high,p,n
gain,difference,0.10,0.02,0.18,0.01,100
loss,difference,-0.10,-0.18,-0.02,0.02,100
perhaps,difference,0.10,0.02,0.18,0.06,100
faster,ratio,1.2,0.9,1.5,,15
twice,ratio,6,5,8,,15
once,ratio,3,2,4,,15
a,accuracy,0.50,0.44,0.58,,100
b,accuracy,0.30,0.22,0.33,,100
none,accuracy,,,,,0
weak,accuracy,0.09,0.05,0.14,,100
weaker,accuracy,0.01,0.00,0.03,,100
fewer,accuracy,0.20,0.10,0.30,,20
"""
LEVEL = "quantity: difference, row: {method: gain}, level: accuracy"
SCORES = "model,question,a,b\n" + "".join(
    f"{model},{model} {number},{a},{b}\n"
    for model in ("small", "medium", "large")
    for number, (a, b) in enumerate(
        zip([*"111011", ""][: 7 if model == "large" else 2], "0001110", strict=False)
    )
)


def direction(folder, claim, more=""):
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run/table.csv").write_text(TABLE)
    (folder / "run/scores.csv").write_text(SCORES)
    claim = (
        claim if "readers" in claim else f"readers: {{small: {{table: run/table.csv}}}}, {claim}"
    )
    text = f"claims: {{one: {{states: s, source: t, {claim}}}}}\n{more}"
    (folder / "claims.yaml").write_text(text)
    [row] = directions(folder / "claims.yaml", folder)
    return row


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("quantity: difference, row: {method: gain}", "agrees"),
        ("quantity: difference, row: {method: loss}", "disagrees"),
        ("quantity: difference, row: {method: loss}, is_lower_better: true", "agrees"),
        ("quantity: ratio, row: {method: faster}, above: 1", "inconclusive"),
        ("quantity: difference, row: {method: perhaps}", "inconclusive"),
        ("quantity: accuracy, better: {method: b}, worse: {method: a}", "disagrees"),
        ("quantity: accuracy, better: {method: a}, worse: {method: weaker}", "agrees"),
        ("quantity: accuracy, better: {method: weak}, worse: {method: weaker}", "at the floor"),
        (f"{LEVEL}, better: {{method: a}}, worse: {{method: b}}", "agrees"),
        (f"{LEVEL}, better: {{method: weak}}, worse: {{method: weaker}}", "at the floor"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_a_low_p_and_a_reader(tmp_path, claim, verdict):
    assert direction(tmp_path, claim)["verdict"] == verdict


def test_scores_are_compared_question_by_question(tmp_path):
    scores = "{table: run/scores.csv, keys: {model: large}, note: half}"
    claim = f"readers: {{large: {scores}}}, note: whole, quantity: em"
    row = direction(tmp_path, f"{claim}, better: {{variant: a}}, worse: {{variant: b}}")
    # the seventh question was asked of one
    test = paired_test([1, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1], limits=SHARE)
    assert [row[name] for name in ("value", "low", "n")] == [
        f"{test['difference']:.6g}",
        f"{test['low']:.6g}",
        6,
    ]
    assert (row["reader"], row["interval"], row["note"]) == ("large", "paired", "half")
    assert row["rows"] == "large, a − large, b"
    both = "readers: {all: {table: run/scores.csv, keys: {model: small|medium}}}, quantity: em"
    assert direction(tmp_path, f"{both}, better: {{variant: a}}, worse: {{variant: b}}")["n"] == 4
    with pytest.raises(UserError, match="has no question of both"):
        direction(tmp_path, f"{claim}, better: {{variant: a}}, worse: {{variant: c}}")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("quantity: accuracy, row: {method: c}", "has 0 rows with"),
        ("quantity: accuracy, row: {method: none}", "has no value with an interval"),
        ("quantity: accuracy, better: {method: a}", "needs either row, or better and worse"),
        (
            "quantity: accuracy, better: {method: a}, worse: {method: fewer}",
            "with other questions: n is 100 and 20",
        ),
        ("quantity: accuracy, rwo: {method: a}", "claims.one.rwo: unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_the_claim(tmp_path, claim, message):
    with pytest.raises(UserError, match=r"claims\.yaml: claims\.one") as raised:
        direction(tmp_path, claim)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("reader", "unmet", "conditions"),
    [
        ("", "{}", "the paper's but for the reader"),
        (", is_papers: true", "{}", "the paper's"),
        (", is_papers: true", "{one: another ranker}", "not tested under its conditions"),
        (", unmet: untrained", "{}", "not tested under its conditions"),
    ],
)
def test_conditions_are_a_verdict_of_their_own(tmp_path, reader, unmet, conditions):
    readers = f"readers: {{small: {{table: run/table.csv{reader}}}}}"
    claim = f"{readers}, quantity: difference, row: {{method: loss}}"
    row = direction(tmp_path, claim, f"unmet: {unmet}")
    assert (row["conditions"], row["verdict"]) == (conditions, "disagrees")


# --- contrasts ---

CONTRASTS = ROOT / "configs/reference/contrasts.yaml"


@pytest.mark.parametrize(("effect", "share"), [(0.12, 0.3), (0.2, 0.25), (0.08, 0.1)])
def test_the_sign_test_has_the_power_that_questions_were_planned_for(effect, share):
    """The exact test, of drawn questions; the formula is an approximation of a few points."""
    questions = module.questions_needed(effect, share, 0.05)
    assert questions < module.questions_needed(effect, share, 0.05 / 8)
    draw = np.random.default_rng(0)
    chances = [(share + effect) / 2, (share - effect) / 2, 1 - share]
    drawn = draw.multinomial(questions, chances, size=3000)[:, :2]
    pairs, counts = np.unique(drawn, axis=0, return_counts=True)
    p = [binomtest(int(a), int(a + b)).pvalue for a, b in pairs]
    power = counts[np.array(p) < 0.05].sum() / counts.sum()
    assert 0.73 < power < 0.86


def test_committed_contrasts_are_planned_and_have_their_questions(tmp_path):
    rows = module.contrasts(CONTRASTS, tmp_path)
    assert 6 <= len(rows) <= 8
    assert {row["verdict"] for row in rows} == {"not run"}
    config = loading.load(ROOT / "configs/reference/like_with_like.yaml")
    for contrast in module.checked(module.Contrasts, module.read(CONTRASTS), "").contrasts.values():
        for reader in contrast.readers.values():
            assert reader.table == f"{config.run}/scores.csv"
            for side in (reader.keys | contrast.better, reader.keys | contrast.worse):
                jobs = {job: config.limit(job) for job in config.answers()}
                job = (side["dataset"], side["model"], side["variant"])
                assert job in jobs
                known = {"wiki_long": 164}  # all of the data set
                limit = jobs[job] or known[job[0]]
                assert limit >= contrast.questions


def test_a_contrast_has_a_verdict_where_its_table_is(tmp_path):
    readers = "readers: {small: {table: run/scores.csv, keys: {model: large}}}"
    sides = "better: {variant: a}, worse: {variant: b}, quantity: em"
    plan = "smallest_effect: 0.4, discordant: 0.9"
    path = tmp_path / "contrasts.yaml"
    needed = module.questions_needed(0.4, 0.9, 0.05)
    one = f"{{states: s, source: t, {readers}, {sides}, {plan}, questions: {needed}}}"
    path.write_text(f"contrasts: {{one: {one}}}")
    assert module.contrasts(path, tmp_path)[0]["verdict"] == "not run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/scores.csv").write_text(SCORES)
    [row] = module.contrasts(path, tmp_path)
    assert (row["verdict"], row["n"], row["questions"]) == ("inconclusive", 6, needed)
    assert row["p_holm"] == f"{float(row['p']):.3g}"
    other = one.replace("variant: b", "variant: c")
    needed_of_two = module.questions_needed(0.4, 0.9, 0.025)
    both = f"contrasts: {{one: {one}, two: {other}}}".replace(str(needed), str(needed_of_two))
    path.with_name("two.yaml").write_text(both)
    first, second = module.contrasts(path.with_name("two.yaml"), tmp_path)
    assert second["verdict"] == "not run"  # c has no answers, and its test counts all the same
    assert float(first["p_holm"]) == pytest.approx(min(1, 2 * float(first["p"])), rel=1e-2)
    path.write_text(path.read_text().replace(f"questions: {needed}", "questions: 20"))
    with pytest.raises(UserError, match=rf"contrasts.one.questions: must be {needed} .*got 20"):
        module.contrasts(path, tmp_path)
    path.write_text(path.read_text().replace("discordant: 0.9", "discordant: 0.3"))
    with pytest.raises(UserError, match="must be at least the effect"):
        module.contrasts(path, tmp_path)


def test_contrasts_are_compared_on_questions_that_were_held_back(tmp_path):
    """Of another run, which may have a part of the data sets."""
    sides = "better: {variant: a}, worse: {variant: b}, quantity: em"
    plan = f"smallest_effect: 0.4, discordant: 0.9, questions: {module.questions_needed(0.4, 0.9, 0.025)}"
    kinds = {"one": "first", "two": "other"}
    entries = [
        f"{name}: {{states: s, source: t, {sides}, {plan}, "
        f"readers: {{r: {{table: run/scores.csv, keys: {{model: m, dataset: {dataset}}}}}}}}}"
        for name, dataset in kinds.items()
    ]
    path = tmp_path / "contrasts.yaml"
    path.write_text(f"contrasts: {{{', '.join(entries)}}}")
    (tmp_path / "held").mkdir()
    rows = [f"first,m,em,q{n},1,{n % 2}" for n in range(12)]
    (tmp_path / "held/scores.csv").write_text(
        "\n".join(["dataset,model,metric,question,a,b", *rows])
    )
    assert [row["verdict"] for row in module.contrasts(path, tmp_path)] == ["not run"] * 2
    first, other = module.contrasts(path, tmp_path, "held")
    assert (first["n"], first["value"]) == (12, "0.5")
    assert other["verdict"] == "not run"


@pytest.mark.parametrize(
    ("lower", "said"), [("", "exceeded"), (", is_lower_better: true", "excluded")]
)
def test_questions_answered_before_stand_apart(lower, said, tmp_path):
    """An effect that only they have is not that of the others."""
    needed = module.questions_needed(0.2, 0.9, 0.05)
    path = tmp_path / "contrasts.yaml"
    path.write_text(
        "contrasts: {one: {states: s, source: t, quantity: em, better: {model: tuned, variant: a}, "
        f"worse: {{model: m, variant: b}}, smallest_effect: 0.2, discordant: 0.9, questions: {needed}, "
        "earlier_scores: before/scores.csv, is_of_paper: false, "
        f"readers: {{r: {{table: run/scores.csv, keys: {{dataset: d}}}}}}{lower}}}}}"
    )
    rows = {"before": [f"d,m,q{n},1,0" for n in range(20)]}
    rows["before"] += [f"d,other,q{n},1,0" for n in range(20, 30)]  # of another reader
    rows["run"] = [f"d,tuned,q{n},1," for n in range(30)]
    rows["run"] += [f"d,m,q{n},,{int(n >= 20)}" for n in range(30)]
    for run, lines in rows.items():
        (tmp_path / run).mkdir()
        (tmp_path / run / "scores.csv").write_text(
            "\n".join(["dataset,model,question,a,b", *lines])
        )
    [row] = module.contrasts(path, tmp_path)
    assert (row["n"], row["value"], row["smallest_effect_is"]) == (30, "0.666667", said)
    assert (row["new_n"], row["new_value"], row["conditions"]) == (10, "0", "")


def test_holms_p_are_those_of_closed_bonferroni_tests():
    p = [0.01, 0.04, 0.03, 0.005, 0.9]
    families = [
        f for size in range(1, len(p) + 1) for f in itertools.combinations(range(len(p)), size)
    ]
    closed = [
        max(min(1, len(f) * min(p[j] for j in f)) for f in families if i in f)
        for i in range(len(p))
    ]
    assert module.holm(p) == pytest.approx(closed)
