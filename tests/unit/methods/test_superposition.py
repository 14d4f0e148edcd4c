"""Methods against dense forward passes: one plain attention over all tokens, under the graph's
brute-force mask.
"""

import random
from dataclasses import replace
from functools import partial
from itertools import accumulate, product

import numpy as np
import pytest
import torch

import reuse_anchors
import tiny_models
from prompt_graphs import chain, generations
from ragauge import registry
from ragauge.engines.protocol import Limits
from ragauge.errors import UserError
from ragauge.methods.base import making
from ragauge.methods.base.reading import Reading
from ragauge.methods.prompts import (
    PREAMBLE,
    TASK,
    PromptGraph,
    Segment,
    unit_segment,
)
from reuse_anchors import answered, close, variant
from tiny_models import dense, tiny_prompt

LIMITS = Limits(max_new_tokens=6, ignore_stop=True)
RANKERS = ["bm25", "tfidf", "dense"]


@pytest.fixture(scope="module", params=sorted(tiny_models.SHAPES))
def lm(request):
    return tiny_models.tiny_lm(tiny_models.SHAPES[request.param])


@pytest.fixture(scope="module")
def llama():
    return tiny_models.tiny_lm()


@pytest.fixture
def prompt():
    return tiny_prompt()


def make(name, encoder="", **options):
    needed = {
        "dense": {"encoder": encoder},
        "kv_link": tiny_models.LINKS,
        "free_extraction": {"volume": 9},  # random weights end no evidence before it is that long
    }
    return making.make(name, **options, **needed.get(name, {}))


fresh = partial(reuse_anchors.fresh, limits=LIMITS)


def greedy(lm, graph, last, bias=None):
    """(answer ids, logits of the first) with `last` added to the graph, each token by a dense pass
    over everything.
    """
    ids = list(last.ids)
    positions = list(last.positions)
    found = []
    first = torch.empty(0)
    for step in range(LIMITS.max_new_tokens):
        whole = PromptGraph(graph)
        whole.add(replace(last, ids=ids, positions=positions))
        logits = dense(lm, whole, bias(whole) if bias else None)[0][-1]
        first = logits if step == 0 else first
        found.append(int(logits.argmax()))
        ids = [*ids, found[-1]]
        positions = [*positions, positions[-1] + 1]
    return found, first


def squeezed(counts, start):
    """Equilibrium positions and the position after them."""
    mean = len(counts) / sum(1 / n for n in counts)
    return [[start + j * mean / n for j in range(n)] for n in counts], start + mean


def trunk(prompt):
    """A graph of the preamble alone."""
    return PromptGraph([unit_segment(PREAMBLE, prompt.preamble, 0)])


def fork(
    graph,
    prompt,
    numbers,
    positions,
    stop,
):
    """Add paths of these documents, whose queries begin at `stop`, behind all of the graph; their
    task, not yet added.
    """
    prefix = tuple(s.name for s in graph)
    for i, at in zip(numbers, positions, strict=True):
        graph.add(Segment(("document", i), prompt.documents[i], at, prefix))
        graph.add(unit_segment(("query", i), prompt.query, stop, (("document", i),)))
    parents = [("query", i) for i in numbers]
    return unit_segment(TASK, prompt.task, stop + len(prompt.query), parents)


def fork_join(prompt, only=None):
    """Superposition's graph of all or `only` some documents, positions from all; and its task, not
    yet added.
    """
    at, stop = squeezed([len(d) for d in prompt.documents], len(prompt.preamble))
    kept = range(len(prompt.documents)) if only is None else only
    graph = trunk(prompt)
    return graph, fork(graph, prompt, kept, [at[i] for i in kept], stop)


def token_range(graph, name):
    """The segment's rows in a dense pass."""
    stops = list(accumulate(len(s.ids) for s in graph))
    index = [s.name for s in graph].index(name)
    return slice(stops[index] - len(graph[name].ids), stops[index])


def mean_logp(graph, logits, name):
    """Mean log-probability of a segment's tokens after the first."""
    rows = token_range(graph, name)
    ids = torch.tensor(graph[name].ids[1:])
    return float(logits[rows][:-1].log_softmax(-1).gather(1, ids[:, None]).mean())


def mean_attention(graph, attention, query, document):
    return float(attention[:, :, token_range(graph, query), token_range(graph, document)].mean())


# ---- every method


@pytest.mark.parametrize("name", registry.names("method"))
def test_one_document_is_enough_and_a_response_ends_where_the_limits_say(name, llama, encoder):
    prompt = replace(tiny_prompt([12]), gold=(0,))
    method = make(name, encoder)
    long, short = (fresh(llama, method, prompt, limits=Limits(n, ignore_stop=True)) for n in (6, 1))
    assert len(long.ids) == 6
    assert short.ids == long.ids[:1]


@pytest.mark.parametrize("name", registry.names("method"))
def test_one_state_serves_many_questions(name, lm, encoder):
    """Answers from one prepared state are those from fresh states, in any order, again and again."""
    method = make(name, encoder)
    prompts = [tiny_prompt(question_seed=n, query=5 + n) for n in range(2)]
    state = method.prepare(lm, prompts[0])
    answers = [fresh(lm, method, prompt) for prompt in prompts]
    for i in (0, 1, 1, 0):
        again = method.answer(lm, state, prompts[i], LIMITS)
        alone = answers[i]
        assert len(alone.ids) == LIMITS.max_new_tokens
        assert set(alone.kept) <= set(range(len(prompts[i].documents)))
        assert len(alone.saliency) in (0, len(prompts[i].documents))
        assert (again.ids, again.kept) == (alone.ids, alone.kept)
        assert_alike(again, alone)


def assert_alike(one, other):
    np.testing.assert_allclose(
        np.array(one.saliency, float), np.array(other.saliency, float), atol=1e-5, rtol=1e-5
    )


# ---- graphs read in spans


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_read_in_spans_is_one_dense_pass(lm, seed):
    """Any graph, any real positions, one generation after another: every logit and every attention
    weight.
    """
    draw = random.Random(seed)
    graph = PromptGraph()
    for number in range(8):
        count = draw.randint(2, 7)
        start = draw.uniform(0, 30)
        parents = tuple(
            ("s", p) for p in draw.sample(range(number), k=draw.randint(0, min(3, number)))
        )
        positions = sorted(start + draw.uniform(0, 9) for _ in range(count))
        graph.add(
            Segment(
                ("s", number),
                [draw.randrange(4, tiny_models.VOCAB) for _ in range(count)],
                positions,
                parents,
            )
        )
    logits, weights = dense(lm, graph)
    reading = Reading(lm, graph, lm.new_cache(4))  # too small: it grows
    for generation in generations(graph):
        parallel = bool(seed % 2)
        read = reading.read(
            generation, stage="x", parallel=parallel, logp=True, last_logits=True, attention="all"
        )
        for name, logp, attention in zip(generation, read.logp, read.attention, strict=True):
            rows = token_range(graph, name)
            targets = torch.tensor(graph[name].ids[1:])[:, None]
            expected = logits[rows][:-1].log_softmax(-1).gather(1, targets)[:, 0]
            close(logp, expected)
            keys = [
                t
                for n in (*graph.ancestors[name], name)
                for t in range(*token_range(graph, n).indices(999))
            ]
            close(attention, weights[:, :, rows, keys].mean((0, 1, 2)))
        if seed % 2:
            last = torch.stack([logits[token_range(graph, name).stop - 1] for name in generation])
            close(read.last_logits, last)


# ---- plain prompts


def test_closed_book_reads_no_instruction_and_no_document(lm, prompt):
    graph = chain([(PREAMBLE, prompt.opening)])
    ids = [*prompt.query, *prompt.task]
    expected, _ = greedy(lm, graph, unit_segment(TASK, ids, len(prompt.opening), (PREAMBLE,)))
    answer = fresh(lm, make("closed_book"), prompt)
    assert (answer.ids, answer.kept) == (expected, ())


def test_the_oracle_reads_the_gold_documents_alone_and_needs_one(llama, prompt):
    gold = replace(prompt, gold=(1, 3))
    alone = replace(prompt, documents=[prompt.documents[1], prompt.documents[3]])
    answer = fresh(llama, make("oracle"), gold)
    assert answer.ids == fresh(llama, make("naive"), alone).ids
    assert answer.kept == (1, 3)
    with pytest.raises(UserError, match="has no gold document"):
        fresh(llama, make("oracle"), replace(prompt, gold=()))


# ---- superposition


def test_superposition_is_the_fork_join(lm, prompt):
    expected, logits = greedy(lm, *fork_join(prompt))
    answer = fresh(lm, make("superposition", path_pruning=False), prompt)
    assert (answer.ids, answer.kept, set(answer.saliency)) == (expected, (0, 1, 2, 3), {None})
    _, first = answered(lm, variant("superposition", path_pruning=False), prompt)
    close(first, logits)


@pytest.mark.parametrize("saliency", ["bayesian", "query", "attention"])
def test_saliency_and_pruning(lm, prompt, saliency):
    """Scores are those of plain log-softmaxes and attention; what is answered is the graph of the
    kept paths.
    """
    graph, _ = fork_join(prompt)
    logits, attention = dense(lm, graph)
    for i, score in enumerate(fresh(lm, make("superposition", saliency=saliency), prompt).saliency):
        query = ("query", i)
        document = ("document", i)
        expected = {
            "bayesian": mean_logp(graph, logits, query) + mean_logp(graph, logits, document),
            "query": mean_logp(graph, logits, query),
            "attention": mean_attention(graph, attention, query, document),
        }
        assert score == pytest.approx(expected[saliency], abs=1e-4)
    for top_k in (1, 3):
        answer = fresh(lm, make("superposition", saliency=saliency, top_k=top_k), prompt)
        best = sorted(range(4), key=lambda i: -(answer.saliency[i] or 0))[:top_k]
        assert answer.kept == tuple(sorted(best))
        assert answer.ids == greedy(lm, *fork_join(prompt, answer.kept))[0]


@pytest.mark.parametrize(
    "options",
    [
        *({"saliency": saliency} for saliency in ("bayesian", "query", "attention", "none")),
        {"path_pruning": False},
        *({"saliency": saliency, "iterations": 2} for saliency in ("bayesian", "attention")),
        *({"saliency": saliency, "factor": 2} for saliency in ("bayesian", "attention")),
    ],
    ids=str,
)
def test_caching_and_parallelization_are_lossless(lm, options):
    prompt = tiny_prompt([9, 14, 5, 11, 14, 8], seed=3)
    answers = []
    for c, p in product([True, False], repeat=2):
        method = make("superposition", top_k=2, path_caching=c, path_parallelization=p, **options)
        answers.append(fresh(lm, method, prompt))
    assert {(tuple(a.ids), a.kept) for a in answers} == {(tuple(answers[0].ids), answers[0].kept)}
    for answer in answers:
        assert_alike(answer, answers[0])


@pytest.mark.parametrize("spacing", [3.7, 10.0, 31.5])
def test_positions_by_the_spacing_of_the_corpus(lm, prompt, spacing):
    graph = trunk(prompt)
    at = [[7 + j * spacing / len(d) for j in range(len(d))] for d in prompt.documents]
    expected, logits = greedy(lm, graph, fork(graph, prompt, range(4), at, 7 + spacing))
    found, first = answered(
        lm,
        variant("superposition", spacing="corpus", saliency="none"),
        replace(prompt, corpus_spacing=spacing),
        LIMITS,
    )
    assert found == expected
    close(first, logits)


def test_a_corpus_that_is_not_known_is_refused(llama, prompt):
    with pytest.raises(UserError, match=r"superposition\.spacing: corpus .*; choose set"):
        fresh(llama, make("superposition", spacing="corpus"), prompt)


@pytest.mark.parametrize(
    "other", [{"positions": "left_aligned"}, {"factor": 2}, {"drop_first_token": True}], ids=str
)
def test_what_the_spacing_of_a_corpus_requires(other):
    with pytest.raises(UserError, match=r"superposition\.spacing: corpus requires"):
        make("superposition", spacing="corpus", **other)


def test_paths_of_several_documents(lm, prompt):
    joined = replace(
        prompt, documents=[[*a, *b] for a, b in (prompt.documents[:2], prompt.documents[2:])]
    )
    answer = fresh(lm, make("superposition", factor=2), prompt)
    kept = 0 if answer.kept == (0, 1) else 1
    assert answer.kept == ((0, 1), (2, 3))[kept]
    assert answer.ids == greedy(lm, *fork_join(joined, [kept]))[0]
    assert answer.saliency[0] == answer.saliency[1] != answer.saliency[2] == answer.saliency[3]


def test_the_first_token_of_segments_is_dropped_as_in_the_released_code(lm, prompt):
    trimmed = replace(
        prompt,
        documents=[d[1:] for d in prompt.documents],
        query=prompt.query[1:],
        task=prompt.task[1:],
    )
    answer = fresh(lm, make("superposition", drop_first_token=True, top_k=2), prompt)
    assert answer == fresh(lm, make("superposition", top_k=2), trimmed)
    assert answer.ids == greedy(lm, *fork_join(trimmed, answer.kept))[0]


@pytest.mark.parametrize("unpruned", [{"saliency": "none"}, {"path_pruning": False}], ids=str)
def test_paths_without_saliency_cannot_be_biased_by_it(unpruned):
    with pytest.raises(
        UserError, match=r"superposition\.path_temperature: requires path_pruning and a saliency"
    ):
        make("superposition", path_temperature=1.0, **unpruned)


def test_a_bias_is_forgotten_with_its_answer(llama, prompt):
    """A top_k that keeps every path answers in the prepared cache itself."""
    biased = make("superposition", top_k=4, path_temperature=0.01)
    state = biased.prepare(llama, prompt)
    biased.answer(llama, state, prompt, LIMITS)
    plain = make("superposition", top_k=4)
    assert plain.answer(llama, state, prompt, LIMITS) == fresh(llama, plain, prompt)


def test_ties_go_to_the_earlier_document(llama, prompt):
    same = replace(prompt, documents=[prompt.documents[0]] * 4)
    for saliency in ("bayesian", "query", "attention"):
        method = make("superposition", saliency=saliency, top_k=2, path_parallelization=False)
        assert fresh(llama, method, same).kept == (0, 1)


def test_segments_of_one_token(llama):
    prompt = tiny_prompt([1, 3, 1], query=1, task=1)
    answer = fresh(llama, make("superposition", top_k=2), prompt)
    assert answer.saliency[0] == answer.saliency[2] == 0.0  # nothing to score
    assert answer.ids == greedy(llama, *fork_join(prompt, answer.kept))[0]


# ---- superposition, several rounds


@pytest.fixture
def hops():
    return tiny_prompt([9, 14, 5, 11, 8, 12], seed=5)


def test_a_later_round_sees_the_preamble_and_what_was_kept_before(lm, hops):
    answer = fresh(lm, make("superposition", top_k=2, iterations=2), hops)
    kept = answer.kept[:2]
    chosen = answer.kept[2:]
    remaining = [i for i in range(6) if i not in kept]
    at, _ = squeezed([len(d) for d in hops.documents], len(hops.preamble))
    graph = trunk(hops)
    for i in kept:
        graph.add(Segment(("document", i), hops.documents[i], at[i], (PREAMBLE,)))
    start = max(position for segment in graph for position in segment.positions) + 1
    at, stop = squeezed([len(hops.documents[i]) for i in remaining], start)
    whole = PromptGraph(graph)
    fork(whole, hops, remaining, at, stop)
    logits, _ = dense(lm, whole)
    scores = {
        i: mean_logp(whole, logits, ("query", i)) + mean_logp(whole, logits, ("document", i))
        for i in remaining
    }
    assert [answer.saliency[i] for i in remaining] == pytest.approx(list(scores.values()), abs=1e-4)
    assert chosen == tuple(sorted(sorted(scores, key=scores.__getitem__)[-2:]))
    task = fork(graph, hops, chosen, [at[remaining.index(i)] for i in chosen], stop)
    assert answer.ids == greedy(lm, graph, task)[0]


# ---- attention sort


def attention_paid(lm, prompt, order, tokens):
    """Attention of these tokens, on average, on each document, summed over its tokens, where they
    stand in this order.
    """
    names = [("document", i) for i in order]
    documents = [(name, prompt.documents[name[1]]) for name in names]
    graph = chain([(PREAMBLE, prompt.preamble), *documents, (TASK, prompt.ending)])
    weights = dense(lm, graph)[1].mean((0, 1))[tokens].mean(0)
    return [float(weights[token_range(graph, ("document", i))].sum()) for i in range(len(order))]


@pytest.mark.parametrize("observed", ["last_token", "query"])
def test_attention_sort_puts_the_most_attended_last(lm, observed):
    prompt = tiny_prompt([9, 14, 5, 11, 9, 7], seed=1)
    of_query = slice(-len(prompt.ending), -len(prompt.task))
    tokens = of_query if observed == "query" else slice(-1, None)
    for rounds in (1, 2, 3):
        order = list(range(6))
        for _ in range(rounds - 1):
            weights = attention_paid(lm, prompt, order, tokens)
            order = sorted(order, key=weights.__getitem__)
        answer = fresh(lm, make("attention_sort", rounds=rounds, observed=observed), prompt)
        assert list(answer.kept) == order
        paid = attention_paid(lm, prompt, order, tokens)
        assert list(answer.saliency) == pytest.approx(paid, abs=1e-5)
        sorted_prompt = replace(prompt, documents=[prompt.documents[i] for i in order])
        assert answer.ids == fresh(lm, make("naive"), sorted_prompt).ids


# ---- rankers


@pytest.mark.parametrize("name", ["bm25", "tfidf"])
def test_a_ranker_may_rank_by_the_question_as_the_prompt_has_it(name, llama, prompt):
    texts = ("Question: x y", *prompt.document_texts[1:])
    asked = replace(prompt, question="zzz", document_texts=texts)
    assert fresh(llama, make(name), asked).saliency[0] == 0
    assert fresh(llama, make(name, query="prompt"), asked).saliency[0] > 0


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize(("top_k", "caching"), [(1, True), (3, True), (3, False)])
def test_a_ranker_reads_the_best_documents_best_first(name, top_k, caching, lm, encoder, prompt):
    answer = fresh(lm, make(name, encoder, top_k=top_k, path_caching=caching), prompt)
    best = sorted(range(4), key=lambda i: -(answer.saliency[i] or 0))[:top_k]
    assert list(answer.kept) == best
    alone = replace(prompt, documents=[prompt.documents[i] for i in best])
    assert answer.ids == fresh(lm, make("naive"), alone).ids
