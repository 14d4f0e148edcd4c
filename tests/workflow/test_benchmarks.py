"""The benchmarks run as their page says; what they measure is no test's business."""

import re

import pytest

from json_lines import last_value
from ragauge.testing import write_checkpoint

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
    def run(script, *arguments):
        folders = (str(root / "tests/support"), str(root / "benchmarks"))
        return preloaded.run(
            "python",
            "-c",
            SCRIPT,
            *folders,
            str(root / "benchmarks" / script),
            "--threads",
            "1",
            *arguments,
        )

    return run


def test_peers_prints_times_ratios_and_reasons(benchmark, model):
    engines = "ragauge float32,transformers sdpa,llama.cpp"
    output = benchmark("peers.py", "--model", str(model), "--engines", engines, "--small", "--json")
    result = last_value(output)
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
