"""The named shapes have the parameters that their checkpoints have."""

import pytest
import yaml

from ragauge.cost.flop import parameters
from ragauge.cost.shapes import named, names

PARAMETERS = yaml.safe_load("""
smollm2-135m-instruct: 134515008
smollm2-360m: 361821120
qwen2.5-coder-0.5b-instruct: 494032768
qwen2.5-coder-1.5b-instruct: 1543714304
llama-2-7b: &llama 6738415616
llama-2-7b-chat: *llama
vicuna-7b-16k: *llama
longchat-7b-32k: *llama
longalpaca-7b-32k: *llama
llama-3-8b: 8030261248
bloomz-3b: 3002557440
bloomz-7b1: 7069016064
mpt-7b-instruct: 6649286656
openelm-3b-instruct: 3036647424
qwen3-0.6b: 596049920
qwen3-1.7b: 1720574976
qwen3-4b: 4022468096
qwen3-8b: 8190735360
qwen3-14b: 14768307200
qwen3-32b: 32762123264
llama-3-70b: 70553706496
mistral-7b-instruct-v0.3: 7248023552
phi-4: 14659507200
gemma-3-1b-it: 999885952
# the text decoders of 4,300,079,472, 12,187,325,040 and 27,432,406,640
gemma-3-4b-it: 3880263168
gemma-3-12b-it: 11766034176
gemma-3-27b-it: 27009346304
phi-4-mini-instruct: 3836021760
smollm3-3b: 3075098624
olmo-2-1b-instruct: 1484916736
granite-3.3-2b-instruct: 2533539840
""")
# the trunk: 552 of 633 millions
PARAMETERS["retro"] = 12 * (4 * 1536**2 + 3 * 1536 * 6144) + 2 * 32128 * 1536 + 25 * 1536


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
