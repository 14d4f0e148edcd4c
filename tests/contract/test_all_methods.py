"""What holds for every registered method: how it is made, how it refuses, and that its cost needs
no weights.
"""

import random
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest
import yaml

import house_article
import tiny_models
from ragauge import registry
from ragauge.cost import shapes
from ragauge.cost.flop import flop
from ragauge.cost.trace import online
from ragauge.engines.protocol import Limits
from ragauge.engines.shape_lm import ShapeLM
from ragauge.errors import UserError
from ragauge.measure.timing import with_corpus
from ragauge.methods.base import making
from ragauge.methods.base.method import STATES, Method
from ragauge.methods.base.states import effective_state, in_state
from ragauge.report.figures.style import ABOUT

LIMITS = Limits(max_new_tokens=5, ignore_stop=True)

# options besides the defaults under which traces are compared
OPTIONS = yaml.safe_load("""
superposition:
- {top_k: 2}
- {top_k: 9}
- {path_caching: false}
- {path_parallelization: false}
- {path_pruning: false}
- {saliency: attention}
- {saliency: none}
- {positions: left_aligned}
- {spacing: corpus}
- {factor: 1}
- {factor: 2}
- {top_k: 2, iterations: 2}
- {drop_first_token: true, path_temperature: 1.0}
attention_sort: [{rounds: 1}, {rounds: 2}]
top: [{top_k: 3}, {path_caching: true}]
bm25: [{top_k: 3}, {path_caching: false}]
tfidf: [{top_k: 3}, {path_caching: false}]
dense: [{top_k: 3}, {path_caching: false}]
compressed:
- {inner: superposition}
- {inner: superposition, compressor: expected_attention}
- {inner: naive_reuse, compressor: knorm}
- {compressor: finch}
""")
# calls follow from the text itself
BY_CONTENT = {"cfic", "chunks", "free_extraction", "long_llmlingua", "sentence_pruning"}
# calls name layers, of which the tiny decoder has fewer: methods/test_reuse.py
BY_DEPTH = {"cache_blend", "prefix_scale_recompute"}
TINY = {"kv_link": tiny_models.LINKS}
VARIANTS = [
    (name, options)
    for name in registry.names("method")
    for options in [TINY.get(name, {}), *OPTIONS.get(name, [])]
    if name not in BY_CONTENT | BY_DEPTH
]


@pytest.mark.parametrize("name", registry.names("method"))
def test_a_method_is_a_frozen_dataclass_with_defaults_that_says_what_it_is(name):
    method = making.make(name)
    assert isinstance(method, Method)
    assert is_dataclass(method)
    assert (type(method).__doc__ or "").strip()
    # what dataclass would write
    assert not (type(method).__doc__ or "").startswith(f"{type(method).__name__}(")
    with pytest.raises(FrozenInstanceError):
        method.anything = 1  # type: ignore[attr-defined]
    options = {f.name: getattr(method, f.name) for f in fields(method)}
    assert making.make(name, **options) == method


def test_the_page_says_in_a_sentence_what_each_method_does():
    assert set(ABOUT) == {*registry.names("method")}


@pytest.mark.parametrize("name", registry.names("method"))
def test_an_unknown_option_is_one_line_with_the_place_and_the_choices(name):
    with pytest.raises(
        UserError, match=rf"^c\.yaml: methods\.v: unknown option of {name} 'top_kk'"
    ) as caught:
        making.make(name, where="c.yaml: methods.v", top_kk=1)
    message = str(caught.value)
    assert "\n" not in message
    assert all(f.name in message.partition("known: ")[2] for f in fields(making.make(name)))


@pytest.mark.parametrize("name", registry.names("method"))
def test_a_value_of_another_type_is_one_line_with_the_place(name):
    for option in fields(making.make(name)):
        with pytest.raises(UserError) as caught:
            making.make(name, where="c.yaml: methods.v", **{option.name: ["wrong"]})
        message = str(caught.value)
        assert message.startswith(f"c.yaml: methods.v.{option.name}: ")
        assert message.endswith("; got ['wrong']")
        assert "\n" not in message


# ---- costs without weights


def traced(lm, name, options, encoder, prompt):
    method = making.make(name, **options, **({"encoder": encoder} if name == "dense" else {}))
    assert method.refusal(lm) is None
    with lm.tracing() as trace:
        method.answer(lm, method.prepare(lm, prompt), prompt, LIMITS)
    return trace


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_decoders_without_weights_and_in_8_bits_make_the_same_calls(name, options, encoder):
    """Documents of one length, since which of them are kept is not known without weights."""
    [prompt] = with_corpus([tiny_models.tiny_prompt([12] * 6, query=8, task=5, seed=1)])
    real = traced(tiny_models.tiny_lm(), name, options, encoder, prompt)
    shaped = [ShapeLM(shapes.named(shape)) for shape in ("mpt-7b-instruct", "openelm-3b-instruct")]
    for lm in (tiny_models.tiny_lm(weights="int8"), *shaped):
        trace = traced(lm, name, options, encoder, prompt)
        assert [_but_seconds(call) for call in trace] == [_but_seconds(call) for call in real]


@pytest.mark.parametrize("name", ["superposition", "prompt_cache"])
def test_paths_side_by_side_may_hold_more_than_the_context(name):
    """Positions end with the longest path, so that a response has room."""
    draw = random.Random(0)
    prompt = tiny_models.tiny_prompt([draw.randint(100, 170) for _ in range(20)])
    trace = traced(ShapeLM(shapes.named("mpt-7b-instruct")), name, {}, "", prompt)
    assert trace[-1].stage == "decode"
    assert trace[-1].steps == LIMITS.max_new_tokens - 1


# ---- what was read before the question


OF_STATES = yaml.safe_load("""
superposition:
- {positions: left_aligned}
- {positions: left_aligned, factor: 2}
- {spacing: corpus}
- {factor: 2}
- {path_caching: false}
parallel_windows: [{windows: 2}, {indent: right}]
prophet_kv: [{neighbours: 2}]
bm25: [{top_k: 3}, {path_caching: false}]
compressed:
- {inner: naive, compressor: knorm}
- {inner: naive_reuse, compressor: knorm}
- {inner: superposition}
naive_reuse: [{begin: "<", end: ">"}]
prefix_tree: [{stored: false}]
chunks: [{ranker: bm25}]
sentence_pruning: [{ranker: bm25}]
""")
# what they chose of the documents is read with the question
READ_CHOSEN = {
    "bm25",
    "tfidf",
    "dense",
    "top",
    "chunks",
    "sentence_pruning",
    "cfic",
    "free_extraction",
}
DOCUMENTS = [("", f"Tea number {i} grows here, {'far ' * (20 + i)}away.") for i in range(5)]


def of_corpus(*documents, **more):
    """A prompt whose corpus' documents have other lengths than its own."""
    return replace(house_article.prompt_of(*documents, **more), corpus_spacing=60.0)


@pytest.fixture(scope="module")
def states_lm():
    return house_article.long_lm()


def with_needs(name, options, encoder):
    """A method with what it needs besides its options."""
    needed = {"encoder": encoder} if "encoder" in making.make(name).__dict__ else {}
    return making.make(name, **needed | options | TINY.get(name, {}))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, options)
        for name in registry.names("method")
        for options in [{}, *OF_STATES.get(name, [])]
    ],
    ids=str,
)
def test_a_method_uses_what_it_declares_was_read_before(states_lm, encoder, name, options):
    method = with_needs(name, options, encoder)
    prompt = of_corpus(*DOCUMENTS, gold=(1, 3))
    if reason := method.refusal(states_lm):
        pytest.skip(reason)
    usable = method.usable_state()
    readings = [
        _answered(states_lm, in_state(method, effective_state(usable, state)), prompt)
        for state in STATES
    ]
    assert len({(tuple(answer.ids), answer.kept) for answer, _, _ in readings}) == 1
    before = [call for _, _, calls in readings[: STATES.index(usable)] for call in calls]
    assert all(call.is_index for call in before if call.offline)
    answers = [
        sum(flop(online(calls), states_lm.shape) for calls in parts[1:]) for parts in readings
    ]
    if usable == "nothing":
        assert len(set(answers)) == 1
        return
    reached = STATES.index(usable)
    assert len(set(answers[:reached])) == len(set(answers[reached:])) == 1
    # without a decoder words are counted and sentences split
    counted = name not in {"chunks", "sentence_pruning"}
    assert answers[reached] < answers[0] or not counted
    online_calls = online(readings[reached][2])
    assert "documents" not in {call.stage for call in online_calls}
    if name not in READ_CHOSEN:
        # CacheClip's small model reads the prompt with the question
        read = [c for c in online_calls if not c.again and c.stage != "auxiliary"]
        tokens = sum(sum(c.lengths) * c.steps for c in read)
        assert tokens < sum(map(len, prompt.documents))


@pytest.mark.parametrize("name", registry.names("method"))
def test_what_is_read_of_a_document_by_itself_does_not_depend_on_the_others(
    states_lm, encoder, monkeypatch, name
):
    """Of a method that declares `documents`: its tokens, their positions and what they attend to."""
    for options in [{}, *OF_STATES.get(name, [])]:
        method = with_needs(name, options, encoder)
        if method.usable_state() == "nothing" or method.refusal(states_lm):
            continue
        alone = {
            row
            for document in DOCUMENTS
            for row in _read_before(states_lm, monkeypatch, method, document)
        }
        together = _read_before(states_lm, monkeypatch, method, *DOCUMENTS[::-1])
        assert (together <= alone) == (method.usable_state() == "documents"), (name, options)


def _answered(lm, method, prompt):
    """The answer, and the calls of preparing it and of answering."""
    with lm.tracing() as trace:
        state = method.prepare(lm, prompt)
        prepared = len(trace)
        answer = method.answer(lm, state, prompt, LIMITS)
    return answer, trace[:prepared], trace[prepared:]


def _read_before(lm, monkeypatch, method, *documents):
    """The rows that `prepare` reads: tokens, positions and the number of tokens that they see."""
    rows = set()
    compute = lm.compute

    def watched(cache, read, options):
        seen = [sum(map(len, row.past)) for row in read]
        rows.update(
            (tuple(row.ids), tuple(row.positions), past)
            for row, past in zip(read, seen, strict=True)
        )
        return compute(cache, read, options)

    with monkeypatch.context() as patch:
        patch.setattr(lm, "compute", watched)
        method.read_before().prepare(lm, of_corpus(*documents))
    return rows


def _but_seconds(call):
    return {k: v for k, v in call.to_json().items() if k != "seconds"}
