"""Sweeps in a configuration: what they stand for, and what is refused."""

import re

import pytest

from ragauge.config.defaults import expanded
from ragauge.errors import UserError
from small_config import parsed
from tables import cases


def test_keys_in_braces_are_swept_crosswise_in_the_order_of_the_label():
    section = {"first": {}, "p_{m}_{n}": {"n": [1, 2], "m": [8, 16], "kept": [3, 4]}, "last": None}
    assert expanded(section, "pipelines") == {
        "first": {},
        "p_8_1": {"n": 1, "m": 8, "kept": [3, 4]},
        "p_8_2": {"n": 2, "m": 8, "kept": [3, 4]},
        "p_16_1": {"n": 1, "m": 16, "kept": [3, 4]},
        "p_16_2": {"n": 2, "m": 16, "kept": [3, 4]},
        "last": None,
    }
    assert list(expanded(section, "pipelines"))[1:5] == ["p_8_1", "p_8_2", "p_16_1", "p_16_2"]


def test_switches_and_fractions_are_written_as_in_yaml():
    assert list(expanded({"{a}_{b}": {"a": [True, False], "b": [0.5]}}, "methods")) == [
        "true_0.5",
        "false_0.5",
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    cases("""
{'p_{m}': {n: [1]}} -> methods.p_{m}: unknown key in braces 'm'; known: n
{'p_{}': {n: [1]}} -> methods.p_{}: unknown key in braces ''
{'p_{m}': {m: 1}} -> methods.p_{m}.m: must be a list of values, since the label names it in braces, not 1
{'p_{m}': {m: []}} -> methods.p_{m}.m: must be a list of values
{'p_{m}': {m: [[1], [2]]}} -> methods.p_{m}.m: must be a list of values
{p_1: {}, 'p_{m}': {m: [1]}} -> methods.p_{m}: there is an entry 'p_1' already
"""),
)
def test_mistakes_name_their_place(section, message):
    with pytest.raises(UserError, match=re.escape(message)):
        expanded(section, "methods")
    with pytest.raises(UserError, match=re.escape(f"c.yaml: {message}")):
        parsed(methods=section)
