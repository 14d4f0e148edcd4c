"""Runs one method variant over one data set's questions and keeps a record of each."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ragauge import assets
from ragauge.cost.trace import Trace, elapsed, online, seconds
from ragauge.datasets import Example
from ragauge.engines import LM, Limits, load_lm
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.io.digest import digest
from ragauge.io.progress import bar
from ragauge.io.records import Evidence, Record, Writer
from ragauge.methods import Answer, Method
from ragauge.methods import Evidence as Piece
from ragauge.prompts import Prompt, Source, build_prompt
from ragauge.prompts.templates import wrapper

FAILURES = (UserError, MemoryError, torch.OutOfMemoryError)  # of one question; anything else is a defect


@dataclass(frozen=True)
class Setting:
    """Everything that a record depends on besides its question: the fingerprint of a file of records."""

    method: str
    options: dict[str, Any]  # of the method, defaults filled in
    dataset: str
    model: str
    template: str
    instruction: str  # the data set's preamble
    dtype: str = "float32"
    device: str = "cpu"
    max_new_tokens: int = 100
    max_context: int | None = None  # in place of the one that the model was trained on
    dataset_options: dict[str, Any] = field(default_factory=dict)
    data_sha256: str | None = None  # of the data file
    model_sha256: str | None = None  # of the weights
    finder: dict[str, Any] | None = None  # model, model_sha256 and max_context of what finds evidence, if another
    code: str | None = None  # digest of the modules that answer (ragauge.io.digest)

    @property
    def limits(self) -> Limits:
        return Limits(max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True)
class Kept:
    """A folder that keeps documents' keys and values, up to a size."""

    folder: Path
    max_bytes: int

    def store(self, setting: Setting) -> DocumentStore:
        """The store for the setting's decoder. Call it once the number of threads is set."""
        weights = setting.model_sha256 or setting.model
        decoder = f"{weights} {setting.dtype} {setting.device} {digest('ragauge.engines')}"
        return DocumentStore(self.folder, decoder, self.max_bytes)


def run(
    setting: Setting,
    method: Method,
    examples: Sequence[Example],
    *,
    variant: str,
    out: Path,
    threads: int | None = None,
    overwrite: bool = False,
    documents: Kept | None = None,
) -> Path:
    """Answer every example that `out` does not hold yet; a killed run goes on where it was.

    A question that cannot be asked is recorded as failed with its reason and the run goes on.

    Args:
        documents: where what is read offline is kept for other runs; it changes no answer.

    Raises:
        UserError: the model cannot be loaded or run the method; `out` holds another run's records or is not writable.
    """
    with Writer(out, asdict(setting), [e.key for e in examples], overwrite) as writer:
        todo = [e for e in examples if e.key not in writer.done]
        if todo:
            lm = _load(setting, method, threads, documents)
            asked = f"{setting.dataset} {variant}"
            for example in bar(asked, "question", len(examples), len(writer.done), iterable=todo):
                writer.append(ask(lm, method, example, setting))
        writer.finish(_meta(setting, variant, threads))
    return out


def ask(lm: LM, method: Method, example: Example, setting: Setting) -> Record:
    """One question's record."""
    base: dict[str, Any] = {
        "key": example.key,
        "question": example.question,
        "answers": list(example.answers),
        "gold": list(example.gold),
        "gold_stretches": [asdict(stretch) for stretch in example.gold_stretches],
        "documents": len(example.documents),
    }
    prompt: Prompt | None = None
    try:
        prompt = prompt_of(example, setting, lm.tokenizer, lm.shape.max_context)
        answer, trace, first_token_s = timed(lm, method, prompt, setting.limits)
    except FAILURES as error:
        return Record(
            **base,
            status="failed",
            reason=" ".join(str(error).split()) or type(error).__name__,
            prompt_sha256=prompt.sha256 if prompt else "",
            tokens=prompt.token_counts() if prompt else {},
        )
    text = lm.tokenizer.decode(answer.ids, skip_special_tokens=True)
    return Record(
        **base,
        status="ok",
        prompt_sha256=prompt.sha256,
        tokens={**prompt.token_counts(), **_evidence_tokens(answer, lm.tokenizer), "generated": len(answer.ids)},
        kept=list(answer.kept),
        saliency=list(answer.saliency),
        evidence=None if answer.evidence is None else [_evidence(piece, example) for piece in answer.evidence],
        truncated=prompt.truncated if answer.truncated is None else answer.truncated,
        text=text,
        prediction=text.split("\n")[0],
        trace=[call.to_json() for call in trace],
        cache_bytes=lm.peak_cache_bytes,
        offline_s=seconds(c for c in trace if c.offline),
        online_s=seconds(online(trace)),
        first_token_s=first_token_s,
    )


def prompt_of(example: Example, setting: Setting, tokenizer: Any, context: int | None = None) -> Prompt:
    """The example's prompt under the setting's template and instruction.

    Args:
        context: the model's, in tokens; a prompt in LongBench's form is made to fit it, and the data set's option
            `max_length` where that is less.
    """
    longest = [context - setting.max_new_tokens] if context else []
    if setting.dataset_options.get("max_length"):
        longest.append(setting.dataset_options["max_length"])
    return build_prompt(
        example.question,
        [(d.title, d.text) for d in example.documents],
        instruction=setting.instruction,
        template=setting.template,
        tokenizer=tokenizer,
        gold=example.gold,
        gold_sources=[
            Source(s.document, "", example.documents[s.document].text[s.start : s.stop], s.start)
            for s in example.gold_stretches
        ],
        context=min(longest, default=None),
    )


def _evidence(piece: Piece, example: Example) -> Evidence:
    """A piece of evidence as it is recorded, compared with its document, which a record does not hold."""
    if piece.document is None:
        return Evidence(**asdict(piece), verbatim=False)
    stands = example.documents[piece.document].text[piece.start : piece.stop]
    return Evidence(**asdict(piece), verbatim=stands == piece.text)


def _evidence_tokens(answer: Answer, tokenizer: Any) -> dict[str, int]:
    """The volume of the evidence, where the method looks for any."""
    if answer.evidence is None:
        return {}
    texts = [piece.text for piece in answer.evidence]
    return {"evidence": sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)}


def timed(lm: LM, method: Method, prompt: Prompt, limits: Limits) -> tuple[Answer, Trace, float]:
    """(answer, trace, online seconds until the first token)."""
    with lm.tracing() as trace:
        state = method.prepare(lm, prompt)
        started, prepared = time.perf_counter(), len(trace)
        answer = method.answer(lm, state, prompt, limits)
    late = elapsed(c for c in trace[prepared:] if c.offline)  # read lazily, but not what the user waits for
    assert lm.first_token_at is not None
    return answer, list(trace), lm.first_token_at - started - late


def _load(setting: Setting, method: Method, threads: int | None, documents: Kept | None) -> LM:
    lm = _decoder(setting, threads, documents)
    wrapper(setting.template, lm.tokenizer)  # a template that does not fit would fail every question
    if setting.finder:
        if not method.finds:
            raise UserError(f"{setting.method}: no model finds evidence for it; leave out the finder")
        lm.found_by(_decoder(replace(setting, **setting.finder), threads, documents))
    reason = method.refusal(lm)
    if reason:
        raise UserError(f"{setting.method} on {setting.model}: {reason}")
    return lm


def _decoder(setting: Setting, threads: int | None, documents: Kept | None) -> LM:
    options: dict[str, Any] = {"dtype": setting.dtype, "device": setting.device, "max_context": setting.max_context}
    lm = load_lm(setting.model, threads=threads, **options)
    lm.documents = documents.store(setting) if documents else None
    return lm


def _meta(setting: Setting, variant: str, threads: int | None) -> dict[str, Any]:
    """What is kept beside the records; the shape is read without the weights, which need not have been loaded."""
    from ragauge.cost.machine import provenance

    return {
        "variant": variant,
        "provenance": provenance(),
        "threads": threads,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "shape": asdict(read_shape(Path(assets.resolve(setting.model)))),
    }
