"""The benchmarks run as their page says; what they measure is no test's business."""

import json
import re

import pytest

from ragauge.testing import write_checkpoint, write_questions

pytestmark = pytest.mark.slow

# Processes of engines are forks, which have torch already.
SCRIPT = """
import multiprocessing, runpy, sys
multiprocessing.get_context = lambda _, get=multiprocessing.get_context: get("fork")
sys.path[:0] = sys.argv[1:3]
del sys.argv[:3]
import quick_machine
quick_machine.shorten()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def benchmark(root, preloaded):
    def run(script, *arguments, threads=True):
        one = ["--threads", "1"] if threads else []
        folders = (str(root / "tests/support"), str(root / "benchmarks"))
        return preloaded.run(
            "python", "-c", SCRIPT, *folders, str(root / "benchmarks" / script), *one, *arguments
        )

    return run


def test_peers_prints_times_ratios_and_reasons(benchmark, model):
    engines = "ragauge float32,transformers sdpa,llama.cpp"
    output = benchmark("peers.py", "--model", str(model), "--engines", engines, "--small", "--json")
    result = json.loads(output.splitlines()[-1])
    assert result["times"]["decode_ms"].keys() == {"ragauge float32", "transformers sdpa"}
    assert all(
        one["n"] == 1 and one["least"] > 0 for one in result["times"]["prefill_40_s"].values()
    )
    assert result["ratios"]["decode_ms"]["ragauge float32"]["transformers sdpa"] > 0
    assert result["floors_ms"]["ragauge float32"] > 0
    assert re.search(
        "xllamacpp|GGUF", result["skipped"]["llama.cpp"]
    )  # not installed, or no such file of this model
    assert "int8_decode_openvino" in result["not_measured"]


def test_int8_prints_what_each_setting_costs(benchmark, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("words of a text " * 40)
    questions = write_questions(tmp_path / "questions.jsonl", count=2)
    sizes = "--windows 1 --window 16 --max-new-tokens 2 --methods closed_book --json"
    options = f"{questions} {text} --model {model} {sizes}".split()
    output = benchmark("int8.py", *options, "--settings", "weights int8")
    found = json.loads(output.splitlines()[-1])["settings"]
    assert found["float32"]["logits_error"] == 0
    assert 0 < found["weights int8"]["logits_error"] < 0.2
    assert found["weights int8"]["order"] == ["closed_book"]


def test_online_latency_prints_times_over_the_floor(benchmark, model, tmp_path):
    lengths = tmp_path / "lengths.json"
    lengths.write_text('{"preamble": 4, "documents": [30, 30, 30], "query": 5, "task": 3}')
    sizes = ["--tokens", str(lengths), "--trials", "2", "--dtypes", "float32", "--allow-load"]
    more = ["--methods", "prompt_cache", "--json"]
    output = benchmark("online_latency.py", "--model", str(model), *sizes, *more)
    assert output.count("time over floor") == 3
    judged = [verdict["target"] for verdict in json.loads(output.splitlines()[-1])["targets"]]
    roofline = [
        f"method_roofline {name} float32" for name in ("naive", "prompt_cache", "superposition")
    ]
    assert sorted(judged) == [*roofline, "superposition_over_naive"]
    assert re.search(
        r"naive over superposition: [\d.]+ in time, [\d.]+ between the floors, [\d.]+ in FLOPs",
        output,
    )


def test_gpu_runs_on_a_processor_too(benchmark, model):
    lengths = [
        "--context",
        "8",
        "--new-tokens",
        "3",
        "--prompt",
        "12",
        "--side",
        "2",
        "--side-context",
        "4",
    ]
    options = [
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--trials",
        "1",
        "--side-new-tokens",
        "2",
        "--json",
    ]
    output = benchmark("gpu.py", "--model", str(model), *lengths, *options, threads=False)
    result = json.loads(output.splitlines()[-1])
    assert result["rates"]["side_by_side_tokens_per_s"] > 0
    assert {verdict["target"] for verdict in result["targets"]} == {
        "gpu_decode_roofline",
        "gpu_prefill_rate",
    }
