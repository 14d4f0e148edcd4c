"""Methods that reuse keys and values: anchors where one equals another, and dense passes by hand of
what each reads.
"""

import math
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch

import lm_references
import tiny_models
from ragauge.cost.flop import call_macs
from ragauge.engines import decoder
from ragauge.engines.cache import KVCache
from ragauge.engines.protocol import SERVED, Limits
from ragauge.engines.spans import Span
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.methods import long_llmlingua
from ragauge.methods.base import making
from ragauge.methods.base.method import plain_row
from ragauge.methods.compressors import base
from ragauge.methods.compressors.base import Context
from ragauge.methods.compressors.expected_attention import ExpectedAttention
from ragauge.methods.context_pilot import annotated
from ragauge.methods.parallel_experts import _divergence
from ragauge.methods.prompts import (
    PREAMBLE,
    TASK,
    PromptGraph,
    Segment,
    unit_segment,
    unit_steps,
)
from ragauge.report.items.reuse import _family as reuse_family
from ragauge.report.items.reuse import table as reuse_table
from reuse_anchors import (
    ANCHORS,
    AWARE,
    INNER,
    LIMITS,
    UNAWARE,
    answered,
    close,
    compressed,
    fresh,
    shortened,
    variant,
)
from tiny_models import dense, tiny_prompt

DEEP = {"heads": (4, 4, 4), "kv_heads": (2, 2, 2), "ffn": (48, 48, 48)}
FAMILIES = {
    "llama": replace(tiny_models.LLAMA, **DEEP),
    "bloom": replace(tiny_models.ALIBI, **DEEP | {"kv_heads": (4, 4, 4)}),
    "mpt": replace(tiny_models.FAMILIES["mpt"], **DEEP),
    "openelm": replace(
        tiny_models.FAMILIES["openelm"], **DEEP | {"heads": (4, 6, 4), "kv_heads": (2, 3, 2)}
    ),
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lm(request):
    return tiny_models.tiny_lm(FAMILIES[request.param])


@pytest.fixture(scope="module", params=["llama", "bloom"])
def plain_lm(request):
    """The families that `tiny_models.dense` reads by hand."""
    return tiny_models.tiny_lm(FAMILIES[request.param])


@pytest.mark.parametrize(("one", "other", "part"), ANCHORS, ids=lambda value: str(value)[:40])
def test_anchors(lm, one, other, part):
    """Under these options a method is another one."""
    prompt = shortened(tiny_prompt(), part)
    (mine, logits), (theirs, expected) = (answered(lm, asked, prompt) for asked in (one, other))
    assert mine == theirs
    if logits is not None and expected is not None:
        close(logits, expected)


@pytest.fixture
def memory_of_nan():
    """torch fills memory that nothing was written to with NaN, where else it holds what was there
    before.
    """
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


SPANS = [  # kv_link needs tokens of its own
    *(variant(name) for name in reuse_family.STORED if name != "kv_link"),
    *(variant(name) for name in ("naive", "prompt_cache", "superposition", "prefix_tree")),
    *(variant(name, recompute=0.5) for name in ("cache_blend", "prophet_kv", "cache_clip")),
    *(
        compressed(inner, ratio=0.5, compressor=c)
        for inner in INNER[:3]
        for c in ("kvzip", "attention_matching")
    ),
    compressed("naive_reuse", ratio=0.5, compressor="expected_attention"),
    compressed("naive", ratio=0.5, compressor="snapkv"),
]


@pytest.mark.parametrize("asked", SPANS, ids=str)
def test_what_memory_held_before_is_never_read(asked, monkeypatch, request):
    """Masked or not: 0 times what is no number is no number. Long rows are read in chunks, here
    very short ones.
    """
    lm = tiny_models.tiny_lm(
        replace(tiny_models.LLAMA, heads=(4,) * 4, kv_heads=(2,) * 4, ffn=(48,) * 4)
    )
    monkeypatch.setattr("ragauge.engines.passes.MASK_CHUNK", 7)
    expected = answered(lm, asked, tiny_prompt())
    request.getfixturevalue("memory_of_nan")
    torch.testing.assert_close(answered(lm, asked, tiny_prompt()), expected, atol=0, rtol=0)


@pytest.mark.parametrize("kv", ["full", "int8_stored", "int4_stored"])
@pytest.mark.parametrize("asked", SPANS, ids=str)
def test_answers_do_not_depend_on_stored_documents(asked, kv, tmp_path):
    """What a method is shown while a document is read is not in a store, so that such a pass is
    made each time. Documents that a store rounds are rounded without one, too.
    """
    lm = tiny_models.tiny_lm(FAMILIES["llama"], kv=kv)
    expected = answered(lm, asked, tiny_prompt())
    lm.documents = DocumentStore(tmp_path, "this decoder", 10**9)
    for _ in range(2):
        torch.testing.assert_close(answered(lm, asked, tiny_prompt()), expected, atol=0, rtol=0)


# ---- parallel windows


def windows(prompt, indent, shared_prefix):
    """What parallel windows read, with every window's own copy of what stands before it."""
    longest = max(map(len, prompt.documents))
    start = len(prompt.preamble)
    graph = PromptGraph([Segment(PREAMBLE, prompt.preamble, unit_steps(0, start))])
    for i, ids in enumerate(prompt.documents):
        before = prompt.preamble if shared_prefix else prompt.preamble[:1]
        graph.add(unit_segment(("begin", i), before, 0))
        at = start + (longest - len(ids) if indent == "right" else 0)
        graph.add(unit_segment(("document", i), ids, at, (("begin", i),)))
    add_question(graph, prompt, start + longest)
    return graph


def add_question(graph, prompt, at):
    """Add a question that sees the preamble and all documents."""
    parents = (PREAMBLE, *(("document", i) for i in range(len(prompt.documents))))
    graph.add(unit_segment(TASK, prompt.ending, at, parents))


def hide_begins(graph):
    """A bias that keeps the question from the windows' own beginnings: (query, key)."""
    names = [s.name for s in graph for _ in s.ids]
    hidden = [[q == TASK and k[0] == "begin" for k in names] for q in names]
    return torch.zeros(len(names), len(names)).masked_fill(torch.tensor(hidden), -torch.inf)


@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.parametrize("indent", ["left", "right"])
def test_windows_are_read_alone_and_seen_together(plain_lm, indent, shared_prefix):
    prompt = tiny_prompt()
    graph = windows(prompt, indent, shared_prefix)
    expected, _ = dense(plain_lm, graph, hide_begins(graph))
    _, logits = answered(
        plain_lm, variant("parallel_windows", indent=indent, shared_prefix=shared_prefix), prompt
    )
    close(logits, expected[-1])


# ---- APE


def test_ape_merges_two_attentions(lm):
    """A layer's output is that of the documents' and that of all other keys' attention, merged by
    their sums.
    """
    prompt = tiny_prompt()
    temperature = 0.7
    scale = 1.3
    method = making.make("ape", temperature=temperature, scale=scale)
    state = method.prepare(lm, prompt)
    cache = state.reading.cache
    seen = []
    attend = decoder.tempered_attention
    start = state.spans[0].start
    stop = state.spans[-1].stop
    outputs = []
    cache.watch = lambda layer, q, k, bias: seen.append((layer, q[0], k[0], bias))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            decoder,
            "tempered_attention",
            lambda *given: outputs.append(attend(*given)) or outputs[-1],
        )
        method.answer(lm, state, prompt, Limits(2, ignore_stop=True))
    for (layer, q, k, bias), mine in zip(seen, outputs, strict=True):
        v = cache.v[layer][:, : k.shape[1]]
        k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
        s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias[0]
        context = torch.zeros(k.shape[1], dtype=torch.bool)
        context[start:stop] = True
        inside = s[..., context] / temperature
        outside = s[..., ~context]
        weights = torch.stack(
            [scale * temperature * inside.logsumexp(-1), outside.logsumexp(-1)], -1
        ).softmax(-1)
        merged = (
            weights[..., :1] * (inside.softmax(-1) @ v[:, context])
            + weights[..., 1:] * (outside.softmax(-1) @ v[:, ~context])
        )  # fmt: skip
        close(mine[0], merged)
    assert len(seen) == 2 * lm.shape.layers


# ---- stored documents, partly read again


def apart(prompt, *before):
    """Preamble and documents in the plain prompt's places, each read alone or behind tokens of its
    own.
    """
    graph = PromptGraph([unit_segment(PREAMBLE, prompt.preamble, 0)])
    at = len(prompt.preamble)
    for i, ids in enumerate(prompt.documents):
        parents = (("begin", i),) if before else ()
        for name in parents:
            graph.add(unit_segment(name, before[i], at - len(before[i])))
        graph.add(unit_segment(("document", i), ids, at, parents))
        at += len(ids)
    return graph


def read_again(graph, prompt, again):
    """`graph` with the plain prompt's tokens at some places and the question as new tokens.

    The bias hides what they replace from them, and the beginnings that a document alone sees.
    """
    ids = prompt.plain(prompt.documents)
    places = [*again, *range(len(ids) - len(prompt.ending), len(ids))]
    copies = [s.name[0] == "begin" for s in graph for _ in s.ids]
    keys = [*(p for s in graph for p in s.positions), *places]
    count = len(copies)
    whole = PromptGraph(graph)
    parents = tuple(s.name for s in graph)
    for place in places:
        whole.add(Segment(("again", place), [ids[place]], [float(place)], parents))
        parents = (*parents, ("again", place))
    hidden = [[q >= count and (k > keys[q] or (n < count and (copies[n] or k in again))) for n, k in enumerate(keys)]
              for q in range(len(keys))]  # fmt: skip
    return whole, torch.zeros(len(keys), len(keys)).masked_fill(torch.tensor(hidden), -torch.inf)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("tokens", [1, 6])
def test_epic_reads_first_tokens_again(plain_lm, tokens, bos):
    prompt = tiny_prompt()
    begun = (
        replace(prompt, documents=[[*prompt.preamble[:1], *d] for d in prompt.documents])
        if bos
        else prompt
    )
    again = []
    at = len(prompt.preamble)
    for ids in begun.documents:
        again += range(at, at + min(tokens, len(ids)))
        at += len(ids)
    expected, _ = dense(plain_lm, *read_again(apart(begun), begun, again))
    _, logits = answered(plain_lm, variant("epic", tokens=tokens, bos=bos), prompt)
    close(logits, expected[-1])


LINKED = {"links": 2, "first_link": 86, "begin": 4, "end": 5}


def trained(name, folder):
    """A random checkpoint in the layout of a trained one, by transformers and by the decoder."""
    model = lm_references.build(name)
    model.save_pretrained(folder)
    return model, lm_references.read(folder)


def restated(model, ids, segments):
    """Logits (vocab,) of the last token by a dense mask: segment 0 sees all before it, another one
    itself alone.
    """
    count = len(ids)
    seen = [
        [k <= q and segments[q] in (0, segments[k]) for k in range(count)] for q in range(count)
    ]
    mask = torch.zeros(count, count).masked_fill(~torch.tensor(seen), -torch.inf)[None, None]
    with torch.inference_mode():
        logits = model(
            torch.tensor([ids]), attention_mask=mask, position_ids=torch.arange(count)[None]
        ).logits
    return logits[0, -1]


def small(ids):
    return [6 + token % 80 for token in ids]


def short_vocabulary(prompt):
    """The prompt in tokens of `lm_references`."""
    parts = {name: small(getattr(prompt, name)) for name in ("preamble", "query", "task")}
    return replace(prompt, documents=[small(ids) for ids in prompt.documents], **parts)


def test_kv_link_is_the_papers_mask_on_a_checkpoint_like_its_own(tmp_path):
    """Llama 3.2's layout: preamble, links and question see all before them, a document sees itself."""
    model, lm = trained("llama3", tmp_path)
    prompt = short_vocabulary(tiny_prompt())
    ids = [*prompt.preamble, 4]
    segments = [0] * (len(prompt.preamble) + 1)
    for i, document in enumerate(prompt.documents):
        ids += [*document, 86 + 2 * i, 87 + 2 * i]
        segments += [i + 1] * len(document) + [0, 0]
    ids += [5, *prompt.query, *prompt.task]
    segments += [0] * (len(ids) - len(segments))
    found, logits = answered(lm, variant("kv_link", **LINKED), prompt)
    close(logits, restated(model, ids, segments))
    assert len(found) == LIMITS.max_new_tokens


@pytest.mark.parametrize(
    ("layout", "marks"), [("llama3", ()), ("qwen2_tied", (3, 4))], ids=["blocks", "turbo_rag"]
)
def test_naive_reuse_is_block_attention_and_turbo_rag(layout, marks, tmp_path):
    """Every block sees itself, the last one all; TurboRAG's documents stand between two marks."""
    model, lm = trained(layout, tmp_path)
    lm.tokenizer = lambda text, add_special_tokens: {
        "input_ids": {"": [], "<d>": [3], "</d>": [4]}[text]
    }
    prompt = short_vocabulary(tiny_prompt())
    blocks = [[*marks[:1], *document, *marks[1:]] for document in prompt.documents]
    question = [*prompt.query, *prompt.task]
    ids = [token for block in (prompt.preamble, *blocks, question) for token in block]
    segments = [i for i, block in enumerate([prompt.preamble, *blocks], 1) for _ in block] + [
        0
    ] * len(question)
    options = {"begin": "<d>", "end": "</d>"} if marks else {}
    _, logits = answered(lm, variant("naive_reuse", **options), prompt)
    close(logits, restated(model, ids, segments))


@pytest.mark.parametrize("options", [{}, {**LINKED, "first_link": 258}, {**LINKED, "begin": 88}])
def test_links_that_a_model_lacks_are_one_line(llama, options):
    method = making.make("kv_link", **options)
    if reason := method.unsupported(llama):
        assert "token ids up to" in reason
        return
    with pytest.raises(
        UserError, match=r"kv_link: 4 documents: link tokens up to id \d+ are not free"
    ):
        method.prepare(llama, tiny_prompt())


def traced(lm, asked, prompt, decode=False):
    """The calls of an answer, and the rows of each."""
    rows = []
    whole = lm.extend

    def extend(cache, asked_rows, **options):
        rows.append(asked_rows)
        return whole(cache, asked_rows, **options)

    method = making.make(asked[0], **asked[1])
    with pytest.MonkeyPatch.context() as patch, lm.tracing() as trace:
        patch.setattr(lm, "extend", extend)
        fresh(lm, method, prompt)
    return [
        c for c in trace if c.stage not in ("move", "rank") and (decode or c.stage != "decode")
    ], rows


@pytest.mark.parametrize("criterion", ["value", "key"])
def test_cache_blend_reads_what_changed_the_most(lm, criterion):
    """The tokens of layers 2 on are those whose layer 1 differs the most between the plain prompt
    and alone.
    """
    prompt = tiny_prompt()
    state = making.make("naive_reuse").prepare(lm, prompt)
    alone = state.assembled(prompt, LIMITS).cache
    whole = lm.new_cache(alone.length)
    ids = prompt.plain(prompt.documents)[: alone.length]
    lm.extend(whole, [plain_row(ids)], stage="x")
    mine, theirs = (c.v[1] if criterion == "value" else c.k[1] for c in (alone, whole))
    mine = mine[:, : alone.length]
    theirs = theirs[:, : alone.length]
    distance = ((mine - theirs) ** 2).sum((0, 2))[len(prompt.preamble) :]
    count = int(0.3 * len(distance))
    expected = sorted((distance.topk(count).indices + len(prompt.preamble)).tolist())
    calls, rows = traced(lm, variant("cache_blend", recompute=0.3, criterion=criterion), prompt)
    question = list(range(alone.length, alone.length + 10))
    assert list(rows[-1][0].slots) == expected + question
    assert [(c.stage, c.layers, c.offline) for c in calls[-2:]] == [
        ("check", (0, 2), False),
        ("prompt", (2, 3), False),
    ]
    assert sum(c.offline for c in calls) == 5


def test_prophet_kv_reads_what_the_question_attends_to(plain_lm):
    prompt = tiny_prompt()
    whole, bias = read_again(apart(prompt), prompt, [])
    _, weights = dense(plain_lm, whole, bias)
    start = len(prompt.preamble)
    count = sum(map(len, prompt.documents))
    context = weights[:, :, start + count :, : start + count]
    attended = (context / context.sum(-1, keepdim=True)).mean((0, 1, 2))[start:]
    expected = sorted((attended.topk(int(0.2 * count)).indices + start).tolist())
    calls, rows = traced(plain_lm, variant("prophet_kv"), prompt)
    assert list(rows[-1][0].slots)[:-10] == expected
    assert [(c.stage, c.offline) for c in calls[-2:]] == [("query", False), ("prompt", False)]
    logits = answered(plain_lm, variant("prophet_kv"), prompt)[1]
    close(logits, dense(plain_lm, *read_again(apart(prompt), prompt, expected))[0][-1])


@pytest.mark.parametrize("layers", [1.0, 0.3])
@pytest.mark.parametrize("own", [False, True])
def test_cache_clip_reads_windows_that_a_small_model_attends_to(plain_lm, own, layers):
    """Windows of three tokens, best mean attention of the small model's question first, until a
    fifth is chosen.
    """
    prompt = tiny_prompt()
    lm = tiny_models.tiny_lm(plain_lm.shape)
    small = lm if own else tiny_models.tiny_lm(replace(plain_lm.shape, ffn=(24, 24, 24)), seed=3)
    lm.set_finder(None if own else small)
    ids = prompt.plain(prompt.documents)
    start = len(prompt.preamble)
    count = sum(map(len, prompt.documents))
    asked = len(prompt.ending)
    _, weights = dense(small, PromptGraph([unit_segment(TASK, ids, 0)]))
    attended = weights[max(1, round(layers * 3)) - 1, :, -asked:, start : start + count].mean(
        (0, 1)
    )
    windows = sorted(range(count - 2), key=lambda at: -float(attended[at : at + 3].mean()))
    expected = list(dict.fromkeys(t for at in windows for t in range(at, at + 3)))[
        : int(0.2 * count)
    ]
    again = sorted(start + t for t in expected)
    clip = variant("cache_clip", window=3, layers=layers)
    calls, rows = traced(lm, clip, prompt)
    assert list(rows[-1][0].slots)[:-asked] == again
    of_small = (None if layers == 1 else (0, 1), False)
    assert [(c.stage, c.layers, c.offline) for c in calls[-3:]] == [
        *[("auxiliary", *of_small)] * 2,
        ("prompt", None, False),
    ]
    macs = [call_macs(replace(c, macs=None), small.shape) for c in calls[-3:-1]]
    assert [c.macs for c in calls[-3:-1]] == ([None, None] if own else macs)
    assert [c.past for c in calls if c.stage == "documents"] == [(start,)] * len(prompt.documents)
    graph = apart(prompt, *[prompt.preamble] * len(prompt.documents))
    expected_logits, _ = dense(lm, *read_again(graph, prompt, again))
    close(answered(lm, clip, prompt)[1], expected_logits[-1])


def test_an_auxiliary_with_a_sliding_window_is_refused():
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    lm.set_finder(tiny_models.tiny_lm(replace(FAMILIES["llama"], windows=(4, 0, 0))))
    assert "sliding window of 4 tokens" in (making.make("cache_clip").refusal(lm) or "")


def test_neighbours_are_read_before_a_document_is_stored(tmp_path):
    """With one neighbour, of two documents each has seen the other; all read again is the plain
    prompt as before.
    """
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    prompt = tiny_prompt([9, 14])
    encoder = f"path:{tiny_models.encoder(tmp_path)}"
    graph = apart(prompt, *reversed(prompt.documents))
    add_question(graph, prompt, 30)
    expected, _ = dense(lm, graph, hide_begins(graph))
    behind = {"neighbours": 3, "encoder": encoder}
    _, logits = answered(lm, variant("prophet_kv", recompute=0.0, **behind), prompt)
    close(logits, expected[-1])
    for score in ("mean", "last_layer"):
        again = answered(lm, variant("prophet_kv", recompute=1.0, score=score, **behind), prompt)[1]
        close(again, answered(lm, variant("naive"), prompt)[1])


# ---- parallel experts


@pytest.mark.parametrize("beta", ["paper", "released", "none"])
def test_the_surest_expert_names_the_next_token(plain_lm, beta):
    prompt = tiny_prompt()
    gamma = 0.5
    method = making.make("parallel_experts", beta=beta, gamma=gamma)
    answer = fresh(plain_lm, method, prompt)
    prior = torch.tensor(answer.saliency)
    found = []
    for step in range(LIMITS.max_new_tokens):
        tail = [*prompt.query, *prompt.task, *found]
        logits = torch.stack(
            [alone(plain_lm, [*prompt.preamble, *d, *tail]) for d in [*prompt.documents, []]]
        )
        p = logits[:-1].softmax(-1)
        q = logits[-1:].softmax(-1)
        if step == 0:
            m = (p + q) / 2
            parts = 0.5 * (p * (p / m).log() + q * (q / m).log())
            weight = {
                "paper": parts.sum(-1, keepdim=True),
                "released": parts,
                "none": torch.zeros(1),
            }[beta].clamp(0, 1)
        scores = (1 + weight) * logits[:-1] - weight * logits[-1:] + gamma * prior.log()[:, None]
        found.append(int(scores.max(0).values.argmax()))
    assert answer.ids == found
    assert prior.min() > 0
    assert prior.max() <= 1


def alone(lm, ids):
    """The logits (vocab,) after a plain prompt."""
    return lm.extend(
        lm.new_cache(len(ids)), [plain_row(ids)], stage="x", last_logits=True
    ).last_logits[0]


@pytest.mark.parametrize("scores", ["bm25", "dense", "both", "equal"])
def test_retrieval_scores_are_priors(scores, tmp_path):
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    prompt = tiny_prompt()
    prompt = replace(prompt, question=prompt.document_texts[1])
    encoder = "minilm" if scores in ("bm25", "equal") else f"path:{tiny_models.encoder(tmp_path)}"
    method = making.make("parallel_experts", scores=scores, encoder=encoder)
    assert method.assets() == (() if encoder == "minilm" else (encoder,))
    answer = fresh(lm, method, prompt)
    assert all(0 < r <= 1 for r in answer.saliency)
    assert (len(set(answer.saliency)) == 1) == (scores == "equal")


# ---- compressed


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("compressor", [*AWARE, *UNAWARE])
def test_compressed_keeps_the_share(compressor, inner):
    """What the response attends to is shorter; documents are compressed offline, but not by who
    knows the question.
    """
    lm = tiny_models.tiny_lm(FAMILIES["bloom"])
    prompt = tiny_prompt([30, 20, 26])
    sources = tuple(replace(s, text="a" * 20) for s in prompt.sources)
    prompt = replace(prompt, sources=sources)
    ratio = 0.875
    trace = {}
    for r in (0.0, ratio):
        trace[r], _ = traced(
            lm, compressed(inner, compressor=compressor, ratio=r), prompt, decode=True
        )
    # whose heads keep different numbers: the cache is as long as the longest
    if compressor != "kvzip":
        assert trace[ratio][-1].past[0] < (1 - ratio / 3) * trace[0.0][-1].past[0]
    notes = [c for c in trace[ratio] if c.stage == "compress" and c.macs is not None]
    assert {c.offline for c in notes} == {
        compressor in UNAWARE and inner in ("naive_reuse", "superposition")
    }


def kept_by(lm, asked, prompt):
    """The slots that the last compression kept: (layer, kv_head, kept)."""
    seen = []
    whole = KVCache.select_by_head

    def keep(cache, slots, extra=0):
        seen.append(slots)
        return whole(cache, slots, extra)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KVCache, "select_by_head", keep)
        answered(lm, asked, prompt)
    return seen[-1]


@pytest.mark.parametrize("compressor", AWARE)
def test_what_the_question_attends_to_is_kept(plain_lm, compressor):
    prompt = tiny_prompt([30, 20, 26])
    ids = prompt.plain(prompt.documents)
    _, weights = dense(plain_lm, PromptGraph([unit_segment(TASK, ids, 0)]))
    window = 64 if compressor == "snapkv" else 10
    before = len(ids) - window
    kept = int(len(ids) * 0.2) if compressor == "finch" else 75
    rows = weights[:, :, before:, :before]
    if compressor == "finch":
        scores = (rows * torch.arange(before + 1, len(ids) + 1)[:, None]).mean(2)
    else:
        padded = torch.nn.functional.pad(rows.mean(2), (2, 2))
        scores = sum(padded[..., i : i + before] for i in range(5)) / 5
    scores = scores.unflatten(1, (plain_lm.shape.kv_heads[0], -1)).mean(2)
    expected = [
        [sorted(head.topk(kept - window).indices.tolist()) for head in layer] for layer in scores
    ]
    ratio = 1 - kept / len(ids) - 1e-9
    found = kept_by(plain_lm, compressed("naive", compressor=compressor, ratio=ratio), prompt)
    assert [[head[:-window] for head in layer] for layer in found] == expected
    assert all(head[-window:] == list(range(before, len(ids))) for layer in found for head in layer)


@pytest.mark.parametrize("budget", ["own", "all", "layer", "head"])
def test_kvzip_keeps_what_repeating_attends_to(budget, monkeypatch):
    """Attention over the 4 first tokens, a piece and its repetition; all heads, a layer's or each
    keep 9 of 30.
    """
    monkeypatch.setattr("ragauge.methods.compressors.base.PIECE", 20)
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    prompt = tiny_prompt([30])
    ids = prompt.documents[0]
    encode = lambda text: lm.tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    best = torch.zeros(3, 2, 30)
    for lead, sinks, piece in (
        (encode(base.REPEAT), [], range(20)),
        ([*encode(base.GO_ON), *ids[12:20]], [0, 1, 2, 3], range(20, 30)),
    ):
        tail = [*lead, *encode("[/][assistant]"), *(ids[i] for i in piece)]
        row = Segment(TASK, [*ids, *tail], unit_steps(0, 30 + len(tail)))
        seen = [*sinks, *piece, *range(30, 30 + len(tail))]
        weights = dense(lm, PromptGraph([row]))[1][:, :, 30:, seen]
        weights = (weights / weights.sum(-1, keepdim=True))[
            ..., len(sinks) : len(sinks) + len(piece)
        ]
        best[..., list(piece)] = weights.amax(2).unflatten(1, (2, -1)).amax(2)
    best[..., :4] = 2.0
    groups = best.reshape({"layer": 3, "head": 6}.get(budget, 1), -1)
    kept = (
        torch.zeros_like(groups)
        .bool()
        .scatter(1, groups.topk(3 * 2 * 9 // len(groups)).indices, True)
        .view_as(best)
    )
    expected = [[row.nonzero()[:, 0].tolist() for row in layer] for layer in kept]
    assert (
        kept_by(lm, compressed("naive_reuse", compressor="kvzip", ratio=0.7, budget=budget), prompt)
        == expected
    )


def test_expected_attention_is_that_of_a_gaussian():
    """Scores of one head, by an average over rotations of every future position."""
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    ids = tiny_prompt([30]).documents[0]
    compressor = ExpectedAttention(0)
    cache = lm.new_cache(30)
    cache.watch = compressor.watch()
    lm.extend(cache, [plain_row(ids)], stage="x")
    [scores, *_] = compressor.scores(Context(lm, cache, Span(0, 30), ids, False))
    layer = lm.decoder.weights.layers[0]
    weights = lm.decoder.weights
    q = layer.qkv(layer.attention_norm(weights.embedding[torch.tensor(ids)]))[:, :32].view(
        30, 4, 8
    )[4:]
    angle = torch.arange(30.0, 542.0)[:, None] * 10000.0 ** (-torch.arange(4) / 4)
    cos = angle.cos().mean(0).diag()
    sin = angle.sin().mean(0).diag()
    turn = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)], 0)
    found = []
    for head in range(4):
        mean = turn @ q[:, head].mean(0)
        covariance = turn @ torch.cov(q[:, head].T, correction=0) @ turn.T
        k = cache.k[0][head // 2, 4:30]
        found.append((k @ mean / 8**0.5 + ((k @ covariance) * k).sum(-1) / 16).softmax(0))
    expected = torch.stack(found).unflatten(0, (2, 2)).mean(1) * cache.v[0][:, 4:30].norm(dim=-1)
    close(scores[:, 4:], expected)
    assert scores[:, :4].isinf().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner": "epic"}, r"compressed.inner: compresses around naive, .*; got 'epic'"),
        (
            {"inner": "superposition", "inner_options": {"path_temperature": 1.0}},
            "biased keys cannot be compressed",
        ),
        (
            {
                "inner": "superposition",
                "inner_options": {"path_caching": False},
                "compressor": "knorm",
            },
            "knorm compresses stored documents",
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        making.make("compressed", **options)


# ---- LongLLMLingua


@pytest.fixture(scope="module")
def llama():
    return tiny_models.tiny_lm(FAMILIES["llama"])


def nll(lm, before, ids):
    """Negative log-probability of each of `ids` after `before`, by one plain pass."""
    row = plain_row([*before, *ids])
    return -lm.extend(lm.new_cache(len(row.ids)), [row], stage="x", logp=True).logp[0][
        len(before) - 1 :
    ]


def restricted(lm, prompt):
    return [
        *prompt.query,
        *lm.tokenizer(long_llmlingua.RESTRICTION, add_special_tokens=False)["input_ids"],
    ]


@pytest.mark.parametrize("reorder", [False, True])
def test_nothing_compressed_is_the_ranked_prompt(llama, reorder):
    prompt = tiny_prompt()
    method = making.make("long_llmlingua", rate=1.0, reorder=reorder)
    answer = method.answer(llama, None, prompt, LIMITS)
    surprise = [float(nll(llama, d, restricted(llama, prompt)).mean()) for d in prompt.documents]
    assert [-s for s in answer.saliency] == pytest.approx(surprise, abs=1e-4)
    ranked = sorted(range(4), key=lambda i: surprise[i])
    assert answer.kept == tuple(ranked if reorder else range(4))
    ordered = replace(prompt, documents=[prompt.documents[i] for i in answer.kept])
    assert answer.ids == answered(llama, variant("naive"), ordered)[0]


def test_tokens_that_the_question_makes_likelier_are_kept(llama, monkeypatch):
    monkeypatch.setattr(long_llmlingua, "PIECE", 8)
    monkeypatch.setattr(long_llmlingua, "EXTRA", -30)
    prompt = tiny_prompt([20, 30, 24], seed=2)
    asked = []
    monkeypatch.setattr(
        long_llmlingua,
        "read_plain",
        lambda _e, _p, documents, _l: asked.append(list(documents)) or [],
    )
    answer = making.make("long_llmlingua", rate=0.6, dynamic=0.2).answer(
        llama, None, prompt, LIMITS
    )
    question = restricted(llama, prompt)
    begin = prompt.preamble[:1]
    target = 0.6 * (17 + 74) - 17
    kept = []
    budget = target - 30
    for i in sorted(range(3), key=lambda i: -answer.saliency[i]):
        kept.append(i)
        budget -= len(prompt.documents[i])
        if budget < 0:
            break
    share = target / sum(len(prompt.documents[i]) for i in kept)
    text = []
    expected = []
    for rank, i in enumerate(kept):
        keep = min(1, share + (0.2 - 0.4 * rank / (len(kept) - 1) if len(kept) > 1 else 0))
        expected.append([])
        for at in range(0, len(prompt.documents[i]), 8):
            piece = prompt.documents[i][at : at + 8]
            gain = nll(llama, begin + text, piece) - nll(llama, begin + question + text, piece)
            chosen = [
                piece[j] for j in sorted(gain.topk(round(keep * len(piece))).indices.tolist())
            ]
            text = text + chosen
            expected[-1] = expected[-1] + chosen
    assert asked == [expected]
    assert answer.kept == tuple(kept)


# ---- the prefix tree


def of(prompt, *order):
    return replace(prompt, documents=[prompt.documents[i] for i in order])


def read_online(lm, method, prompt):
    """The lengths of the documents that are not found in the store; the answer is that of the plain
    prompt.
    """
    state = method.prepare(lm, prompt)
    with lm.tracing() as trace:
        answer = method.answer(lm, state, prompt, LIMITS)
    assert answer.ids == answered(lm, variant("naive"), of(prompt, *answer.kept))[0]
    return [c.lengths[0] for c in trace if c.stage == "documents"]


def test_prefixes_are_found_again(lm):
    prompt = tiny_prompt()
    method = making.make("prefix_tree").for_run()
    asked = [
        of(prompt, 0, 1, 2),
        of(prompt, 0, 1, 3),
        of(prompt, 1, 0),
        of(prompt, 0, 1, 2),
        of(prompt, 0),
    ]
    assert [read_online(lm, method, p) for p in asked] == [[9, 14, 5], [11], [14, 9], [], []]
    alone = making.make("prefix_tree")
    assert [read_online(lm, alone, asked[0]) for _ in range(2)] == [[9, 14, 5]] * 2
    assert read_online(lm, making.make("prefix_tree").for_run(), asked[0]) == [9, 14, 5]


@pytest.mark.parametrize("name", ["prefix_tree", "context_pilot"])
def test_on_a_server_the_order_alone_remains(llama, name):
    prompt = tiny_prompt([4] * 6)
    local = making.make(name, reorder=True)
    served = local.adapted_to(SERVED)
    runs = (local.for_run(), served.for_run())
    orders = []
    assert (local.refusal(llama), served.required()) == (None, frozenset())
    for _, places in zip(range(12), permutations(range(6), 4), strict=False):
        one = of(prompt, *places[::-1])
        answers = [fresh(llama, method, one) for method in runs]
        assert answers[0].kept == answers[1].kept
        assert answers[0].ids == answers[1].ids
        orders.append(answers[1].kept)
    assert len(set(orders)) > 1


@pytest.mark.parametrize(("policy", "stay"), [("lru", {1, 3}), ("pgdsf", {0, 3})])
def test_leaves_of_least_worth_leave_a_full_store(llama, policy, stay):
    """Room for two documents: one used often, one lately; a third takes the place of either."""
    prompt = tiny_prompt([10, 10, 10, 10])
    token = llama.new_cache(1)
    token.length = 1
    found = set()
    for asked in (0, 1, 3):
        method = making.make(
            "prefix_tree", policy=policy, store_gb=25 * token.bytes / 1e9
        ).for_run()
        for i in (0, 0, 0, 1, 3):
            read_online(llama, method, of(prompt, i))
        found |= set() if read_online(llama, method, of(prompt, asked)) else {asked}
    assert found == stay


def test_a_path_longer_than_the_store_is_kept_as_far_as_it_fits(llama):
    prompt = tiny_prompt([10, 10, 10])
    token = llama.new_cache(1)
    token.length = 1
    method = making.make("prefix_tree", store_gb=25 * token.bytes / 1e9).for_run()
    assert [read_online(llama, method, prompt) for _ in range(2)] == [[10, 10, 10], [10]]


# ---- the context index

# documents as retrieved, and as the released code (EfficientContext/ContextPilot at 1fa0a14) orders
# them
REQUESTS = [
    ("ABC", "ABC"),
    ("DAB", "ABD"),  # splits a leaf
    ("DBE", "BDE"),  # shares documents with ABD, but not its first
    ("ECA", "ACE"),
    ("BFA", "ABF"),
    ("EBD", "BDE"),  # as before, in another order
    ("GH", "GH"),
    ("HFG", "GHF"),
]


def test_the_context_index_orders_as_the_released_code_does(llama):
    """The tokens read anew, and the answers, are those of the prefix tree in that order."""
    documents = tiny_prompt([4] * 8)
    pilot = making.make("context_pilot").for_run()
    tree = making.make("prefix_tree").for_run()
    for asked, expected in REQUESTS:
        prompt = of(documents, *map("ABCDEFGH".index, asked))
        order = tuple(map(asked.index, expected))
        with llama.tracing() as trace:
            answer = fresh(llama, pilot, prompt)
        assert answer.kept == order
        ordered = of(prompt, *order)
        assert [c.lengths[0] for c in trace if c.stage == "documents"] == read_online(
            llama, tree, ordered
        )
        assert answer.ids == answered(llama, variant("naive"), ordered)[0]


def test_a_document_given_twice_is_read_once(llama):
    prompt = of(tiny_prompt(), 1, 0, 1)
    for options, order in (({}, (0, 1)), ({"deduplicate": False, "reorder": False}, (0, 1, 2))):
        answer = answered(llama, variant("context_pilot", **options), prompt)[0]
        assert answer == answered(llama, variant("naive"), of(prompt, *order))[0]


@pytest.mark.parametrize("stored", [True, False])
def test_the_order_given_is_written_before_the_question(llama, stored):
    prompt = tiny_prompt()
    written = annotated(llama.tokenizer, prompt, [2, 0, 3, 1])
    line = llama.tokenizer.decode(written.query[: len(written.query) - len(prompt.query)])
    assert line.startswith("Read the documents in this importance ranking: 2 > 4 > 1 > 3\n")
    found, _ = answered(llama, variant("context_pilot", annotate=True, stored=stored), prompt)
    assert (
        found == answered(llama, variant("naive"), annotated(llama.tokenizer, prompt, range(4)))[0]
    )


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        (variant("naive_reuse"), 0.0),
        (variant("epic", tokens=3), 12 / 39),
        (variant("prophet_kv", recompute=0.2), 7 / 39),
        (variant("cache_blend", recompute=0.2), 2 / 3 + 7 / 39 / 3),
        (variant("prefix_scale_recompute", recompute=0.2), 2 / 3 + 7 / 39 / 3),
        (variant("prefix_tree"), 0.0),
    ],
    ids=str,
)
def test_the_item_counts_what_is_read_again(llama, asked, share):
    prompt = tiny_prompt()
    trace, _ = traced(llama, asked, prompt)
    run = SimpleNamespace(
        shape=llama.shape,
        traces={"q": trace},
        records={"q": SimpleNamespace(tokens=prompt.token_counts())},
    )
    assert reuse_table.read_again(run)["q"] == pytest.approx(share)


@pytest.mark.parametrize(("inner", "window"), [("naive_reuse", 10), ("superposition", 4)])
def test_documents_read_apart_leave_snapkv_a_shorter_window(plain_lm, inner, window):
    """The question, or the task behind its copies, as docs/methods.md states it."""
    prompt = tiny_prompt([30, 20, 26])
    name, options = compressed(inner, compressor="snapkv")
    around = making.make(name, **options)
    state = around.prepare(plain_lm, prompt)
    around.answer(plain_lm, state, prompt, LIMITS)
    assert {len(q[0]) for q in state[0].compressor.window.queries.values()} == {window}


def test_a_probability_of_zero_adds_nothing_to_the_divergence():
    """Those below the smallest number of fp32 as well."""
    logits = torch.tensor(
        [[0.0, -300.0, -200.0], [-300.0, 0.0, -torch.inf], [0.0, -200.0, -torch.inf]]
    )
    torch.testing.assert_close(_divergence(logits, "paper"), torch.tensor([[0.0], [math.log(2)]]))
