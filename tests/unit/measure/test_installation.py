"""`ragauge doctor`: what is found, and what to do about it."""

import re

import pytest

from json_lines import last_value, write_lines
from ragauge.cli import _main
from ragauge.measure import installation


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def one(findings):
    (found,) = findings
    return found


def test_every_finding_is_one_line_and_json_has_them_all(
    capsys,
):
    assert _main.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert _main.main(["doctor", "--json"]) == 0
    findings = last_value(capsys.readouterr().out)["findings"]
    assert len(lines) == len(findings)
    expected = {
        "python",
        "processor",
        "memory",
        "compiler",
        "torch",
        "gpu",
        "store",
        "speed",
        "[workflow]",
    }
    assert expected <= {each["topic"] for each in findings}
    assert all(each["found"] for each in findings)
    assert not [line for line in lines if line.endswith("->")]


@pytest.mark.parametrize(
    ("flags", "todo"),
    [
        ("fpu avx2 avx512f avx512_bf16", ""),
        ("fpu avx2", "bfloat16 is emulated"),
        ("fpu sse2", "decoding will be slow"),
        ("fp asimd bf16", ""),
    ],
)
def test_instruction_sets(flags, todo, tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags : {flags}\n")
    assert installation.cpu_flags(cpuinfo) == set(flags.split())
    monkeypatch.setattr(installation, "cpu_flags", lambda: set(flags.split()))
    assert installation.processor().todo.startswith(todo)
    assert bool(installation.processor().todo) == bool(todo)


def test_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installation.compiler().todo.startswith("install one")
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    assert installation.compiler() == installation.HealthCheck("compiler", str(tmp_path / "cc"))


def test_a_store_that_cannot_be_written_or_is_almost_full(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "file" / "home"))
    assert "cannot be written" in installation.store().found
    assert "RAGAUGE_HOME" in installation.store().todo
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr(installation.shutil, "disk_usage", lambda _: usage)
    assert "1.0 GB free" in installation.store().found
    assert "ragauge cache prune" in installation.store().todo


def test_speed_is_told_where_it_is_known_and_measured_on_request(
    monkeypatch,
):
    from ragauge.engines import tuning

    assert one(installation.speed(False)).found == "not measured yet"
    layers = 30
    seconds = {"float32": {"prompt_s": 0.5 / layers, "token_s": 0.01 / layers}}
    monkeypatch.setattr(tuning, "dtype_speeds", lambda again: seconds)
    assert one(installation.speed(True)).found.startswith(
        "float32 reads 2,000, writes 100 tokens/s"
    )
    monkeypatch.setattr(tuning, "has_tables", lambda _: True)
    assert one(installation.speed(False)).todo == ""


def test_nothing_is_measured_unasked(monkeypatch, home):
    from ragauge.engines import tuning

    monkeypatch.delenv("RAGAUGE_KERNELS")
    monkeypatch.setattr(tuning, "measure", lambda *_: pytest.fail("measured"))
    list(installation.findings())
    assert not (home / "kernels").exists()


# ---- a data set


def test_what_finds_the_gold_documents_of_a_data_set(tmp_path, capsys):
    rows = [
        {
            "id": f"q{i}",
            "question": f"Which is number {i}?",
            "answers": ["gold"],
            "documents": [
                {"title": "t", "text": f"gold {i}", "is_gold": True},
                *({"title": "t", "text": f"another text {n}", "is_gold": False} for n in range(9)),
            ],
        }
        for i in range(12)
    ]
    path = write_lines(tmp_path / "few.jsonl", rows)
    asked = ["doctor", "--dataset", "wiki_single", "--data", str(path)]
    assert _main.main([*asked, "--json"]) == 0
    findings = last_value(capsys.readouterr().out)["findings"]
    by_topic = {each["topic"]: (each["found"], each["todo"]) for each in findings}
    assert by_topic["gold at random"][0] == "0.1, 12 questions"
    found, todo = by_topic["gold is shortest"]
    assert re.fullmatch(r"1 \[0\.\d+, 1\], 12 questions", found)
    assert todo
    assert by_topic["gold is longest"][1] == ""
    assert by_topic["length of gold"][0] == "3, 12 questions"
    assert _main.main(asked) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(findings)
    config = tmp_path / "c.yaml"
    config.write_text(f"""run: r
models: {{smollm2-135m-instruct: {{}}}}
datasets: {{few: {{dataset: wiki_single, data: {path}, limit: 5}}}}
""")
    assert _main.main(["doctor", "--dataset", "few", "--config", str(config)]) == 0
    assert "5 questions" in capsys.readouterr().out


def test_options_of_a_data_set_need_one(tmp_path, capsys):
    assert _main.main(["doctor", "--data", str(tmp_path)]) == 2
    assert "--dataset" in capsys.readouterr().err
