"""Token counts of the prompts whose compute cycles Superposition Prompting prints, and how the
paper counts these.

`tests/unit/measure/test_predictions.py` holds every row of its tables to the numbers that are
predicted with them.
"""

from math import sqrt

import pytest

from ragauge.cost import cycles, tokens
from ragauge.cost.flop import attention_macs, layer_weights, output_weights, row_macs
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call
from ragauge.results.publications import read_csv


def plain_tokens(shape, naive_macs):
    """Tokens of the plain prompt that costs `naive_macs` with the logits of all of them: the root
    of a quadratic.
    """
    linear = layer_weights(shape) + output_weights(shape)
    quadratic = attention_macs(shape, 1, 0)
    return round((sqrt(linear**2 + 4 * quadratic * naive_macs) - linear) / (2 * quadratic))


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
    """Its cycles give the prompt's tokens; preamble, query and task shrink in proportion, rounded
    down.
    """
    shape = named(model.lower())
    rows = read_csv(f"superposition_table_{number}")
    naive = next(
        float(r["compute_cycles"]) for r in rows if (r["model"], r["method"]) == (model, "naive")
    )
    base = tokens.load(counts)
    found = tokens.load(entry)
    assert found.total == plain_tokens(shape, naive)
    for part in ("preamble", "query", "task"):
        assert getattr(found, part) == getattr(base, part) * found.total // base.total
    assert tokens.load(counts, vocab=shape.vocab) == found


@pytest.mark.parametrize(("counts", "naive"), [("nq_open", 2.16e13), ("musique", 1.86e13)])
def test_the_base_counts_are_those_of_mpts_naive_cell(counts, naive):
    mpt = named("mpt-7b-instruct")
    assert tokens.load(counts, vocab=mpt.vocab).total == plain_tokens(mpt, naive)


def test_attention_to_cached_tokens_counts_by_family():
    call = Call("task", (5,), (100,), logits=(5,))
    for model, times in {"bloomz-3b": 2, "mpt-7b-instruct": 0, "openelm-3b-instruct": 1}.items():
        shape = named(model)
        cached = attention_macs(shape, 5, 100) - attention_macs(shape, 5, 0)
        expected = row_macs(call, shape)[0] + (times - 1) * cached
        assert cycles.compute_cycles([call], shape, "published") == expected
        assert cycles.compute_cycles([call], shape, "critical_path") == row_macs(call, shape)[0]
