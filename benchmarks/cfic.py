"""CFIC's decoding strategies on long documents: one pass against a loop, evidence found against
evidence written.

    python benchmarks/cfic.py [--questions 8] [--rounds 3] [--dtype bfloat16] [--threads 2]

Questions of a data set, each with its document read before, as the protocol has it. Compared are,
in a random order in every round and question,

- skip decoding: all prefixes in one pass over the document's cache, and as the released code does
  it: prefix after prefix on a copy of the cache, sentence after sentence. Both must choose the same
  ends.
- finding evidence: CFIC, CFIC without both strategies, and 256 tokens of free generation after the
same request.

Printed are medians, quartiles and ratios, and the passes that the prefix search took.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ragauge.config.model import ModelEntry
from ragauge.cost.machine import MAX_LOAD, competing_load, cpu_model
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row, Span
from ragauge.measure.inputs import Questions, specification
from ragauge.measure.runner import prompt_of
from ragauge.methods.base.grounding import GroundingText
from ragauge.methods.base.making import make
from ragauge.methods.cfic import CFIC, PreparedDocuments
from ragauge.methods.evidence import prefix, skip
from ragauge.methods.evidence.prefix import EvidenceContext, Prefix, Trie
from ragauge.methods.prompts import Prompt

VOLUME = 256  # tokens of evidence, for all of them
ONE_PASS = "skip, one pass"
ONE_BY_ONE = "skip, one by one"
Seconds = dict[str, list[float]]


class Facts(NamedTuple):
    """What is known of an article and question before anything is timed."""

    tokens: int
    steps: int  # of the prefix search
    depth: int  # of the trie
    agree: bool  # one pass and the loop choose the same ends


def main() -> None:
    args = _arguments()
    lm = load_lm(args.model, dtype=args.dtype, threads=args.threads)
    method = CFIC(d=VOLUME)
    bare = CFIC(d=VOLUME, prefix=False, skip=False)
    seconds: Seconds = {}
    facts: list[Facts] = []
    with competing_load() as load:
        for prompt in _prompts(lm, args):
            state = reading, trie = method.prepare(lm, prompt)
            with lm.tracing() as trace:
                prefixes = prefix.search(lm, reading.ask(lm, prompt), trie, method.top_k)
            tasks = _tasks(lm, state, prompt, prefixes, (method, bare))
            agree = tasks[ONE_PASS]() == tasks[ONE_BY_ONE]()
            # the first token needs no pass of its own
            steps = 1 + sum(call.stage == "prefix" for call in trace)
            facts.append(Facts(len(reading.text.ids), steps, _depth(trie), agree))
            for _ in range(args.rounds):
                for name in random.sample(list(tasks), len(tasks)):
                    started = time.perf_counter()
                    tasks[name]()
                    seconds.setdefault(name, []).append(time.perf_counter() - started)
    _report(args, seconds, facts, load.share)


def _depth(trie: Trie) -> int:
    """Tokens until every prefix is of one sentence alone."""
    depth = 0
    open_nodes = [trie.root]
    while open_nodes:
        after = [node for opened in open_nodes for _, node in trie.branches(opened)]
        depth = depth + 1
        open_nodes = [node for node in after if not trie.settled(node)]
    return depth


def _tasks(
    lm: LM,
    state: PreparedDocuments,
    prompt: Prompt,
    found: Sequence[Prefix],
    methods: tuple[CFIC, CFIC],
) -> dict[str, Callable[[], object]]:
    """What is timed, by name. Each that asks reads the request anew, in place of the one before."""
    method, bare = methods
    context = state[0].ask(lm, prompt)
    # what the search read is gone
    prefixes = [Prefix(p.sentence, p.tokens, p.score) for p in found]
    return {
        ONE_PASS: lambda: one_pass(lm, state, context, prefixes),
        ONE_BY_ONE: lambda: one_by_one(lm, state, context, prefixes),
        "cfic": lambda: method.find(lm, state, prompt),
        "cfic without both": lambda: bare.find(lm, state, prompt),
        f"{VOLUME} tokens written": lambda: _write(lm, state, prompt),
    }


def one_pass(
    lm: LM, state: PreparedDocuments, context: EvidenceContext, prefixes: Sequence[Prefix]
) -> list[skip.Range]:
    """Skip decoding as CFIC here has it."""
    reading, _ = state
    reading.cache.truncate(context.span.stop)  # of what was read after the request
    text = reading.text
    return skip.decode(lm, context, text.ids, text.sentences, prefixes, VOLUME)


def one_by_one(
    lm: LM, state: PreparedDocuments, context: EvidenceContext, prefixes: Sequence[Prefix]
) -> list[skip.Range]:
    """Skip decoding as the released code has it: sentences are read one after another on a copy of
    the cache.
    """
    reading, _ = state
    reading.cache.truncate(context.span.stop)
    return [(p.sentence, _end(lm, context, reading.text, p)) for p in prefixes]


def _end(lm: LM, context: EvidenceContext, text: GroundingText, p: Prefix) -> int:
    ends = skip.within(p, text.sentences, VOLUME)
    copy = lm.join(context.cache, [context.span], extra=VOLUME + 512)
    at = text.sentences[p.sentence].first
    scores = []
    for end in ends:
        ids = text.ids[at : text.sentences[end].end]
        first = context.position + copy.length - len(context.span)
        row = Row(ids, [first + j for j in range(len(ids))], (Span(0, copy.length),))
        logits = lm.extend(copy, [row], stage="skip", last_logits=True).last_logits
        assert logits is not None
        scores.append(float(logits.float().log_softmax(-1)[:, list(lm.shape.eos)].logsumexp(-1)))
        at = text.sentences[end].end
    return ends[scores.index(max(scores))]


def _write(lm: LM, state: PreparedDocuments, prompt: Prompt) -> None:
    context = state[0].ask(lm, prompt)
    lm.generate(context.cache, context.logits, context.position, Limits(VOLUME, ignore_stop=True))


def _prompts(lm: LM, args: argparse.Namespace) -> list[Prompt]:
    questions = Questions(args.dataset, {}, args.data)
    common = specification(
        "naive", make("naive"), questions, ModelEntry(source=args.model, dtype=args.dtype), VOLUME
    )
    return [
        prompt_of(e, common, lm.tokenizer, lm.shape.max_context)
        for e in questions.examples(args.questions)
    ]


def _report(
    args: argparse.Namespace, seconds: Seconds, facts: Sequence[Facts], load: float
) -> None:
    tokens, steps, depth, agree = (statistics.mean(column) for column in zip(*facts, strict=True))
    print(
        f"{args.model} {args.dtype} on {cpu_model()}, {torch.get_num_threads()} threads, {len(facts)} documents of "
        f"{tokens:,.0f} tokens in the mean, {args.rounds} rounds, k=3, d={VOLUME}, competing load {load:.1%}"
    )
    if load > MAX_LOAD:
        print(f"not to be reported: more than {MAX_LOAD:.0%} of the processor was others'")
    for name, times in seconds.items():
        low, median, high = statistics.quantiles(times, n=4)
        print(f"  {name:20} {median:7.3f} s  [{low:.3f}, {high:.3f}]")
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for slow, fast in [
        (ONE_BY_ONE, ONE_PASS),
        (f"{VOLUME} tokens written", "cfic"),
        ("cfic without both", "cfic"),
    ]:
        print(f"  {slow} over {fast}: {medians[slow] / medians[fast]:.2f}")
    print(f"  one pass and one by one choose the same ends for {agree:.0%} of the questions")
    print(
        f"  prefixes are settled after {steps:.1f} tokens in the mean, of {depth:.1f} that the trie is deep"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--dataset", default="wiki_long", help="one whose questions are asked of a long text"
    )
    parser.add_argument("--data", type=Path, metavar="FILE", help="in its official format")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    return parser.parse_args()


if __name__ == "__main__":
    main()
