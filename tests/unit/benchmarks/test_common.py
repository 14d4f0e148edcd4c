"""What the benchmarks share: verdicts on targets, the table of targets on their page."""

import json
import math
from pathlib import Path

import pytest

import startup
import targets
from _common import finish, interleaved
from ragauge.cost.machine import Load


def test_the_page_has_the_table_of_targets(root: Path) -> None:
    assert targets.table() in (root / "benchmarks/README.md").read_text(encoding="utf-8")


def test_verdicts_of_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = targets.Verdicts()
    assert verdicts.check("int8_decode_openvino", 1.0)
    assert not verdicts.check("superposition_over_naive", 9.0)
    assert not verdicts.check("method_roofline", 1.4, of="naive")
    assert not verdicts.check("method_roofline", 0.94, of="faster than the limit")
    verdicts.skip("int8_prefill_openvino", "openvino_genai is not installed")
    finish({"seconds": {}}, verdicts, as_json=True)
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["met", "missed", "missed", "fault", "not"]
    result = json.loads(last)
    assert result["missed"] == [
        "superposition_over_naive",
        "method_roofline naive",
        "method_roofline faster than the limit",
    ]
    assert [verdict["fault"] for verdict in result["targets"]] == [False, False, False, True]
    assert result["not_measured"] == {"int8_prefill_openvino": "openvino_genai is not installed"}
    assert {"provenance", "seconds", "targets"} < set(result)


def test_interleaved_runs_each_task_once_untimed_and_once_a_round() -> None:
    ran: list[str] = []
    tasks = {name: (lambda name=name: ran.append(name)) for name in "ab"}  # type: ignore[misc]
    seconds, load = interleaved(tasks, 3)
    assert {name: len(found) for name, found in seconds.items()} == {"a": 3, "b": 3}
    assert sorted(ran[:2]) == sorted(ran[2:4]) == ["a", "b"]
    assert isinstance(load, Load)


def test_what_a_run_estimated_is_read_from_its_log() -> None:
    lines = "x\nragauge: 12 of 90 jobs done; about 6 min left\nragauge: 40 of 90 jobs done; about 40 s left\n"
    assert startup.estimated_seconds(lines) == 30 + 360
    assert math.isnan(startup.estimated_seconds("ragauge: 1 of 90 jobs done\n"))
