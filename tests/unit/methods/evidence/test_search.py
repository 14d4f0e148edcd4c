"""CFIC's decoding: the trie, the constrained search against brute force, skip decoding against a
loop over copies.
"""

import random
from dataclasses import replace

import pytest
import torch

import tiny_models
from ragauge.engines.spans import Row, Span
from ragauge.methods.evidence import prefix, skip
from ragauge.methods.evidence.prefix import LONGEST, EvidenceContext, Node, Trie
from ragauge.methods.evidence.sentences import Sentence

# the fourth is the first again
WORDS = [[5, 6, 7, 8], [5, 6, 9], [10, 11], [5, 6, 7, 8], [10], [12, 5]]


@pytest.fixture(params=sorted(tiny_models.SHAPES))
def lm(request):
    return tiny_models.tiny_lm(replace(tiny_models.SHAPES[request.param], eos=(1, 2)))


def document(count, seed=0, alphabet=4):
    """Sentences of random tokens with many beginnings in common; two sources."""
    draw = random.Random(seed)
    ids = []
    sentences = []
    for number in range(count):
        first = len(ids)
        ids += [draw.randrange(10, 10 + alphabet) for _ in range(draw.randint(1, 7))] + [9]
        sentences.append(
            Sentence(
                2 * number // count, first, len(ids), first, len(ids), len(ids) - (number % 3 == 0)
            )
        )
    return ids, [replace(s, end=max(s.end, s.first + 1)) for s in sentences]


def texts_of(ids, sentences):
    """Token ids of each sentence."""
    return [ids[s.first : s.end] for s in sentences]


def asked(lm, ids):
    """A context: the document, then a question."""
    cache = lm.new_cache(512)
    text = [*ids, 33, 34, 35]
    logits = lm.extend(
        cache, [Row(text, range(len(text)))], stage="query", last_logits=True
    ).last_logits
    assert logits is not None
    return EvidenceContext(cache, Span(0, len(text)), logits[0], float(len(text)))


def logits_after(lm, text, new):
    """(token, vocab) logits of the last of `text` and of each of `new`, by one plain pass."""
    whole = [*text, *new]
    places = range(len(text) - 1, len(whole))
    read = lm.extend(
        lm.new_cache(len(whole)), [Row(whole, range(len(whole)))], stage="x", logits_at=[places]
    )
    return read.logits[0]


# ---- the trie


def leaves(trie):
    """Sentence -> tokens of its prefix, by walking everything."""
    found = {}
    waiting = [trie.root]
    while waiting:
        for _, node in trie.branches(waiting.pop()):
            if trie.settled(node):
                found |= dict.fromkeys(node.sentences, node.depth)
            else:
                waiting.append(node)
    return found


def shortest_unique(sentences, index):
    """Tokens after which no other sentence, identical ones aside, goes on in the same way."""
    own = list(sentences[index])
    for count in range(1, len(own)):
        if all(list(s) == own or list(s[:count]) != own[:count] for s in sentences):
            return count
    return len(own)


@pytest.mark.parametrize("seed", range(5))
def test_every_sentence_has_its_shortest_unique_prefix(seed):
    ids, sentences = document(30, seed, alphabet=2)
    texts = texts_of(ids, sentences)
    found = leaves(Trie(texts))
    assert found == {i: shortest_unique(texts, i) for i in range(len(texts))}


def test_branches_keep_the_order_of_the_document():
    trie = Trie(WORDS)
    assert trie.branches(trie.root)[0] == (5, Node((0, 1, 3), 1))
    assert trie.branches(trie.root)[1:] == [
        (10, Node((4,), 1)),
        (10, Node((2,), 1, shared=True)),
        (12, Node((5,), 1)),
    ]


def test_long_sentences_that_agree_for_long_count_as_identical():
    same = list(range(10, 10 + LONGEST))
    trie = Trie([[*same, 4], [*same, 5]])
    assert trie.settled(trie.root)
    assert leaves(trie) == {0: 1, 1: 1}


# ---- prefixes


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_best_prefixes_of_all(lm, seed):
    ids, sentences = document(12, seed)
    trie = Trie(texts_of(ids, sentences))
    context = asked(lm, ids)
    with lm.tracing() as trace:
        found = prefix.search(lm, context, trie, k=12)
    check_best(found, every_way(lm, ids, trie, 12), 12)
    assert len(trace) == max(leaves(trie).values()) - 1  # the first token needs no pass of its own


def check_best(found, scores, k):
    """Prefixes are those of the k sentences of the best scores, best first."""
    best = sorted(scores, key=lambda index: (-round(scores[index], 5), index))[:k]
    assert [p.sentence for p in found] == best
    assert [p.score for p in found] == pytest.approx([scores[index] for index in best], abs=1e-5)


def every_way(lm, ids, trie, k):
    """Each sentence that is reached by taking one of the k likeliest tokens after every prefix,
    with its score.
    """
    reached = {}
    waiting = [(trie.root, [])]
    while waiting:
        node, start = waiting.pop()
        logp = logits_after(lm, [*ids, 33, 34, 35], start).log_softmax(-1)
        tokens = sorted(
            {token for token, _ in trie.branches(node)}, key=lambda token: -float(logp[-1][token])
        )[:k]
        for token, child in trie.branches(node):
            if token not in tokens:
                continue
            if trie.settled(child):
                new = [*start, token]
                score = (
                    float(logp[:-1].gather(1, torch.tensor(start, dtype=torch.long)[:, None]).sum())
                    if start
                    else 0.0
                )
                reached |= dict.fromkeys(
                    child.sentences, (score + float(logp[-1][token])) / len(new)
                )
            else:
                waiting.append((child, [*start, token]))
    return reached


@pytest.mark.parametrize("k", [1, 2])
def test_an_exhaustive_search_ranks_every_way_of_k_tokens(lm, k):
    ids, sentences = document(20, 3)
    trie = Trie(texts_of(ids, sentences))
    expected = every_way(lm, ids, trie, k)
    found = prefix.search(lm, asked(lm, ids), trie, k, "exhaustive")
    check_best(found, expected, k)


def test_what_is_written_after_prefixes_is_what_is_written_after_each_alone(lm):
    ids, sentences = document(20)
    texts = texts_of(ids, sentences)
    context = asked(lm, ids)
    found = prefix.search(lm, context, Trie(texts), k=3)
    begun = [texts[p.sentence][: p.tokens] for p in found]
    for together, start in zip(skip.write_on(lm, context, found, begun, 12), begun, strict=True):
        alone = list(start)
        while (
            len(alone) < 12
            and (token := int(logits_after(lm, [*ids, 33, 34, 35], alone)[-1].argmax()))
            not in lm.shape.eos
        ):
            alone.append(token)
        assert together == alone


def test_the_greedy_rule_goes_by_first_tokens(lm):
    ids = [token for words in WORDS for token in words]
    context = asked(lm, ids)
    found = prefix.search(lm, context, Trie(WORDS), k=3, rule="first_token")
    logp = context.logits.log_softmax(-1)
    tokens = sorted((5, 10, 12), key=lambda t: -float(logp[t]))
    firsts = list(dict.fromkeys(WORDS[p.sentence][0] for p in found))
    assert firsts == tokens[: len(firsts)]
    assert [p.score for p in found] == pytest.approx(
        [float(logp[WORDS[p.sentence][0]]) for p in found]
    )
    assert {p.sentence for p in found} & {2, 4} == {2}  # [10, 11] stands before [10]


def test_unconstrained_sequences_go_back_to_sentences(lm):
    ids, sentences = document(6)
    context = asked(lm, ids)
    with lm.tracing() as trace:
        found = prefix.search_free(lm, context, texts_of(ids, sentences), k=3)
    assert len(trace) == prefix.FREE_TOKENS - 1
    assert len({p.sentence for p in found}) == 3
    assert all(p.tokens == 0 and not p.read for p in found)


def test_the_longest_run_decides():
    assert prefix.longest_run([1, 2, 3, 4], [9, 2, 3, 4, 1]) == 3
    assert prefix.longest_run([1, 2], [3, 4]) == 0


# ---- skip decoding


def loop(
    lm,
    text,
    ids,
    sentences,
    prefixes,
    d,
):
    """The reference: each prefix by itself, everything read anew, P(eos) by the softmax."""
    ranges = []
    for p in prefixes:
        own = sentences[p.sentence]
        ends = [i for i, s in enumerate(sentences) if i >= p.sentence and s.source == own.source]
        ends = [i for i in ends if i == p.sentence or sentences[i].end - own.first - p.tokens <= d]
        logits = logits_after(lm, text, ids[own.first : sentences[ends[-1]].end])
        eos = logits.softmax(-1)[:, list(lm.shape.eos)].sum(-1)
        ranges.append(
            (p.sentence, max(ends, key=lambda i: float(eos[sentences[i].end - own.first])))
        )
    return ranges


@pytest.mark.parametrize("d", [0, 6, 30, 400])
@pytest.mark.parametrize("seed", range(2))
def test_one_pass_equals_a_loop_over_prefixes(lm, seed, d):
    ids, sentences = document(20, seed)
    context = asked(lm, ids)
    found = prefix.search(lm, context, Trie(texts_of(ids, sentences)), k=4)
    with lm.tracing() as trace:
        ranges = skip.decode(lm, context, ids, sentences, found, d)
    assert ranges == loop(lm, [*ids, 33, 34, 35], ids, sentences, found, d)
    assert [call.stage for call in trace] in ([], ["skip"])
    assert d < 30 or len(trace) == 1


def test_overlapping_and_touching_stretches_are_merged_in_document_order():
    of_sources = [Sentence(i // 6, 0, 0, 0, 0, 0) for i in range(12)]
    stretches = [(8, 9), (2, 4), (0, 2), (3, 4), (5, 5), (6, 7)]
    assert skip.merge(stretches, of_sources) == [(0, 5), (6, 9)]
    assert skip.merge([], of_sources) == []
