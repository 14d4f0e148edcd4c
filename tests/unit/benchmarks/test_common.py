"""Shared parts of the benchmarks: verdicts on targets, options, the table of targets on their page."""

import json

import startup
import targets
from _common import finish


def test_the_page_has_the_table_of_targets(root):
    assert targets.table() in (root / "benchmarks/README.md").read_text(encoding="utf-8")


def test_verdicts_of_both_directions(capsys):
    verdicts = targets.Verdicts()
    assert verdicts.check("int8_decode_openvino", 1.0)
    assert not verdicts.check("superposition_over_naive", 9.0)
    assert not verdicts.check("method_roofline", 0.94, of="faster than the floor")
    verdicts.skip("int8_prefill_openvino", "it is not installed")
    finish({"seconds": {}}, verdicts, as_json=True)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["missed"] == ["superposition_over_naive", "method_roofline faster than the floor"]
    assert [verdict["fault"] for verdict in result["targets"]] == [False, False, True]
    assert result["not_measured"] == {"int8_prefill_openvino": "it is not installed"}


def test_a_runs_estimate_is_read_from_its_log():
    line = "ragauge: 12 of 90 jobs done; about {} left\n"
    log = f"x\n{line.format('6 min')}{line.format('40 s')}"
    assert startup.estimated_seconds(log) == 30 + 360
