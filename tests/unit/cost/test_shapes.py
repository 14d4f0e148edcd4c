"""The named shapes have the parameters that their checkpoints have."""

import pytest

from ragauge.cost.flop import parameters
from ragauge.cost.shapes import named, names

PARAMETERS = {
    "smollm2-135m-instruct": 134_515_008,
    "smollm2-360m": 361_821_120,
    "qwen2.5-coder-0.5b-instruct": 494_032_768,
    "qwen2.5-coder-1.5b-instruct": 1_543_714_304,
    **dict.fromkeys(
        ("llama-2-7b", "llama-2-7b-chat", "vicuna-7b-16k", "longchat-7b-32k", "longalpaca-7b-32k"),
        6_738_415_616,
    ),
    # the trunk: 552 of 633 millions
    "retro": 12 * (4 * 1536**2 + 3 * 1536 * 6144) + 2 * 32128 * 1536 + 25 * 1536,
    "llama-3-8b": 8_030_261_248,
    "bloomz-3b": 3_002_557_440,
    "bloomz-7b1": 7_069_016_064,
    "mpt-7b-instruct": 6_649_286_656,
    "openelm-3b-instruct": 3_036_647_424,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b-instruct-v0.3": 7_248_023_552,
    "phi-4": 14_659_507_200,
    "gemma-3-1b-it": 999_885_952,
    # the text decoders of 4,300,079,472, 12,187,325,040 and 27,432,406,640
    "gemma-3-4b-it": 3_880_263_168,
    "gemma-3-12b-it": 11_766_034_176,
    "gemma-3-27b-it": 27_009_346_304,
    "phi-4-mini-instruct": 3_836_021_760,
    "smollm3-3b": 3_075_098_624,
    "olmo-2-1b-instruct": 1_484_916_736,
    "granite-3.3-2b-instruct": 2_533_539_840,
}


@pytest.mark.parametrize("name", names())
def test_parameter_counts_are_the_checkpoints_and_grouped_heads_divide(name):
    shape = named(name)
    assert parameters(shape) == PARAMETERS[name]
    assert all(h % k == 0 for h, k in zip(shape.heads, shape.kv_heads, strict=True))


@pytest.mark.parametrize("size", ["4b", "12b", "27b"])
def test_every_sixth_layer_of_gemma_attends_to_all_tokens(size):
    shape = named(f"gemma-3-{size}-it")
    assert len(shape.windows) == shape.layers
    assert [i % 6 for i in range(shape.layers) if shape.window(i) is None] == [5] * (
        shape.layers // 6
    )
