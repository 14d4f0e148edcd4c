"""CFIC as a method: verbatim evidence, one reading of the document, long documents, bad ones, and
memory.
"""

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_models
from house_article import ARTICLE, answered, check_verbatim, long_lm, prompt_of
from ragauge.cost.flop import call_macs
from ragauge.errors import UserError
from ragauge.methods.base import making
from ragauge.methods.base.grounding import answer_from
from reuse_anchors import LIMITS, fresh

VARIANTS = [
    {},
    {"top_k": 1},
    {"top_k": 7, "d": 40},
    {"d": 0},
    {"prefix": False},
    {"search": "first_token"},
    {"search": "exhaustive"},
    {"request": "copy"},
]
WRITTEN = [
    {"skip": False, "d": 24},
    {"prefix": False, "skip": False, "d": 24},
]


@pytest.fixture(params=sorted(tiny_models.SHAPES))
def lm(request):
    return long_lm(tiny_models.SHAPES[request.param])


@pytest.mark.parametrize(("name", "options"), [("cfic", {}), ("free_extraction", {"volume": 24})])
@pytest.mark.parametrize(
    "finder_shape",
    [tiny_models.LLAMA, replace(tiny_models.LLAMA, ffn=(96, 96))],
    ids=["alike", "wider"],
)
def test_another_model_can_find_the_evidence(name, options, finder_shape):
    prompt = prompt_of()
    method = making.make(name, **options)
    shape = replace(finder_shape, max_context=4096, eos=(1,))
    alone, finder = (tiny_models.tiny_lm(shape, seed=7) for _ in range(2))
    lm = long_lm()
    lm.set_finder(finder)
    with alone.tracing() as of_alone:
        found = fresh(alone, method, prompt)
    with lm.tracing() as trace:
        answer = fresh(lm, method, prompt)
    assert answer.evidence == found.evidence != answered("cfic", prompt).evidence
    # read by the other one
    assert answer.ids == answer_from(long_lm(), prompt, found.evidence or (), 0, LIMITS).ids
    finding = [call for call in trace if call.stage not in ("prompt", "decode")]
    assert [call.stage for call in trace] == [call.stage for call in of_alone]
    costs = [
        (call_macs(a, lm.shape), call_macs(b, shape)) for a, b in zip(trace, of_alone, strict=True)
    ]
    # each model's calls cost what they cost it
    assert all(a == b for a, b in costs[: len(finding)])
    assert lm.peak_cache_bytes == alone.peak_cache_bytes > 0


def test_a_finder_reads_the_same_tokens():
    lm = long_lm()
    other = long_lm()
    # as LongAlpaca has one more than Llama 2
    other.tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    lm.set_finder(other)
    assert lm.finder is other
    vocabulary = other.tokenizer.get_vocab()
    swapped = {"a": vocabulary["b"], "b": vocabulary["a"]}
    other.tokenizer.get_vocab = lambda: vocabulary | swapped
    with pytest.raises(UserError, match="have different vocabularies"):
        lm.set_finder(other)


@pytest.mark.parametrize("options", WRITTEN, ids=str)
def test_without_skip_decoding_the_decoder_writes(lm, options):
    prompt = prompt_of()
    answer = answered("cfic", prompt, lm, **options)
    assert answer.evidence
    for piece in answer.evidence:
        placed = piece.document is not None
        assert (
            not placed
            or prompt.sources[piece.document].text[piece.start : piece.stop] == piece.text
        )
        assert placed or piece.text not in ARTICLE


def test_without_both_it_is_free_extraction(lm):
    prompt = prompt_of()
    free = making.make("free_extraction", volume=24)
    expected = fresh(lm, free, prompt)
    answer = answered("cfic", prompt, lm, prefix=False, skip=False, d=24)
    assert (answer.evidence, answer.ids) == (expected.evidence, expected.ids)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_evidence_is_verbatim_and_in_document_order(lm, options):
    several = prompt_of(
        ("A", ARTICLE[:300]), ("", "One."), ("C", ARTICLE[-100:]), instruction="Use these."
    )
    for prompt in (prompt_of(), several):
        answer = answered("cfic", prompt, lm, **options)
        check_verbatim(answer, prompt)
        assert len(answer.evidence) <= options.get("top_k", 3)


# ---- memory

PREFILL = """
import resource, sys
from dataclasses import replace
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import tiny_models
from ragauge.engines.loading import random_lm
from ragauge.methods.base.grounding import read_in_chunks
lm = random_lm(replace(tiny_models.LLAMA, heads=(2,), kv_heads=(1,), ffn=(48,), max_context=20000))
peaks = []
for tokens in (2048, 8192, 16384):
    read_in_chunks(lm, lm.new_cache(tokens), [7] * tokens)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
print(*peaks)
"""


def test_a_long_document_is_read_in_memory_that_grows_linearly(preloaded):
    printed = preloaded.run("python", "-c", PREFILL, str(Path(tiny_models.__file__).parent))
    base, middle, whole = map(int, printed.split())  # MiB
    assert whole - base < 180  # a square mask alone would be 256
    # 4.2 times as much if it grew with the square
    assert whole - base < 3.5 * max(middle - base, 35)
