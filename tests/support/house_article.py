"""An article of short sentences, its prompt, a decoder with room for it, and checks of the evidence
found in it.
"""

from dataclasses import replace
from itertools import pairwise

import tiny_models
from ragauge.methods.base import making
from ragauge.methods.prompts import PromptStyle, build_prompt
from reuse_anchors import fresh

INSTRUCTION = "Read this.\n{context}\n\nQuestion: {input}\nAnswer:"
ARTICLE = (
    "".join(f"House {i} has {i * 7 % 13} cats. Nobody counts them! " for i in range(30))
    + "\n\nNotes\n\nThe end."
)


def long_lm(shape=tiny_models.LLAMA, context=4096):
    return tiny_models.tiny_lm(replace(shape, max_context=context, eos=(1,)))


def prompt_of(
    *documents,
    question="Where is house 7?",
    instruction=INSTRUCTION,
    **more,
):
    """The prompt of some (title, text), or of the article alone."""
    tokenizer = more.pop("tokenizer", None) or tiny_models.byte_tokenizer()
    documents = documents or (("", ARTICLE),)
    gold = {key: more.pop(key) for key in ("gold", "gold_sources") if key in more}
    style = PromptStyle(instruction, "chat", **more)
    return build_prompt(question, documents, style, tokenizer, **gold)


def answered(name, prompt, lm=None, **options):
    method = making.make(name, **options)
    lm = lm or long_lm()
    assert method.refusal(lm) is None
    return fresh(lm, method, prompt)


def check_verbatim(answer, prompt):
    """Evidence is text of the documents, stripped, in their order and without overlaps."""
    assert answer.evidence
    for piece in answer.evidence:
        assert piece.document is not None
        assert prompt.sources[piece.document].text[piece.start : piece.stop] == piece.text
        assert piece.text == piece.text.strip() != ""
    places = [(p.document, p.start, p.stop) for p in answer.evidence]
    assert places == sorted(places)
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(places))
    assert answer.kept == tuple(sorted({p.document for p in answer.evidence}))
