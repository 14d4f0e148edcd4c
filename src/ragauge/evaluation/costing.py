"""Costs of methods: timed on questions or on random tokens, or computed from the decoder's shape alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragauge.cost import latency, shapes
from ragauge.cost import tokens as lengths
from ragauge.cost.cold import Disk
from ragauge.cost.flop import trace_macs
from ragauge.cost.hardware import precision
from ragauge.cost.machine import measure
from ragauge.cost.report import cost_report
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.engines import LM, Limits, ShapeLM, load_lm, random_lm
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.evaluation.inputs import Questions, specification
from ragauge.evaluation.runner import prompt_of
from ragauge.experiment.dtypes import with_dtype
from ragauge.experiment.schema import ModelEntry
from ragauge.methods import Method, make
from ragauge.methods.dense import Dense
from ragauge.methods.naive import Naive
from ragauge.prompts import Prompt

UNBOUNDED = 1 << 62  # bytes of a store that is temporary


def time_model(
    variants: Mapping[str, Method],
    questions: Questions,
    count: int,
    model: ModelEntry,
    *,
    threads: int | None,
    new_tokens: Sequence[int],
    tokens: str | None = None,
    **protocol: Any,
) -> dict[str, Any]:
    """The latency protocol on the first `count` questions.

    Args:
        tokens: token counts by name or file (`cost.tokens.load`) of a prompt of random tokens in place of questions.
        new_tokens: response lengths, timed one after another; the first gives the main result, the others its
            `other_lengths`.
        protocol: further arguments of `cost.latency.run`, and `folder`, on whose disk documents are stored meanwhile.
    """
    kept = asdict(with_dtype(model).precision)
    options: dict[str, Any] = {"device": model.device, "max_context": model.max_context, **kept}
    engine = load_lm(model.source, threads=threads, **options)
    if tokens:
        prompts = [_random_prompt(engine.shape, tokens)]
    else:  # prompts are the same for all methods
        common = specification("naive", make("naive"), questions, model, max(new_tokens))
        examples = questions.examples(count)
        prompts = [prompt_of(example, common, engine.tokenizer, engine.shape.max_context) for example in examples]
    return _timed(variants, prompts, engine, new_tokens, dataset=questions.name, **protocol)


def time_shape(
    variants: Mapping[str, Method],
    counts: str,
    model: ModelEntry,
    *,
    threads: int | None,
    new_tokens: Sequence[int],
    **protocol: Any,
) -> dict[str, Any]:
    """The latency protocol with random weights of the model's shape and random tokens, as in the released script.

    Args:
        counts: token counts of the prompt, by name or file (`cost.tokens.load`).
        new_tokens, protocol: as in `time_model`.
    """
    shape, prompt = _shape_and_prompt(model.source, counts, max(new_tokens))
    engine = random_lm(shape, device=model.device, threads=threads, **asdict(with_dtype(model).precision))
    return _timed(variants, [prompt], engine, new_tokens, dataset=f"{counts} lengths", **protocol)


def _timed(
    variants: Mapping[str, Method],
    prompts: Sequence[Prompt],
    engine: LM,
    new_tokens: Sequence[int],
    *,
    folder: Path | None = None,
    documents_cold: bool = False,
    **protocol: Any,
) -> dict[str, Any]:
    """The result for the first response length; it holds those for the other lengths."""
    allow_load = protocol.get("allow_load", False)
    machine = protocol.pop("machine", None) or measure(device=engine.device.type, allow_load=allow_load)
    on_disk = documents_cold or engine.device.type == "cpu"  # a GPU computes documents faster than a disk stores them
    disk = Disk(folder, lambda place: DocumentStore(place, "timed", UNBOUNDED)) if folder and on_disk else None
    naive = next((name for name, method in variants.items() if isinstance(method, Naive)), None)
    common: dict[str, Any] = {**protocol, "machine": machine, "naive": naive, "disk": disk}
    limits = _limits(new_tokens[0])
    first = latency.run(variants, prompts, engine, limits=limits, documents_cold=documents_cold, **common)
    others = [latency.run(variants, prompts, engine, limits=_limits(n), **common) for n in new_tokens[1:]]
    return {**first, "other_lengths": others}


def project(
    name: str,
    method: Method,
    model: str,
    counts: str,
    new_tokens: int,
    accounting: str,
    dtype: object,
    counter: str = "closed_form",
) -> dict[str, Any]:
    """The cost of `method`, registered as `name`, on a model given by name or folder, from its shape alone.

    Args:
        dtype: a torch dtype, its name or a `cost.hardware.Precision`.
        counter: `closed_form` or `fvcore`, whose count of the trace then stands beside that of the formulas.
    """
    shape, prompt = _shape_and_prompt(model, counts, new_tokens)
    engine = ShapeLM(shape, precision=precision(dtype))
    reason = method.refusal(engine)
    if reason:
        raise UserError(f"{name} on the shape of {model}: {reason}")
    if accounting != "total" and isinstance(method, Dense) and "contriever" in method.encoder:
        method = without_encoder(method)
    common: dict[str, Any] = {"limits": _limits(new_tokens), "accounting": accounting, "counts": counts}
    report = cost_report(name, method, make("naive"), engine, prompt, **common)
    if counter == "fvcore":
        report |= counted(report["trace"], shape)
    return {"model": model, **report}


def counted(trace: Sequence[Mapping[str, Any]], shape: Shape) -> dict[str, int]:
    """The multiply-accumulates of all calls of a trace, offline ones included: by the formulas and by fvcore."""
    from ragauge.evaluation.counting import fvcore_macs

    calls = [Call.from_json(dict(call)) for call in trace]
    return {"closed_form_macs": trace_macs(calls, shape), "fvcore_macs": fvcore_macs(calls, shape)}


def without_encoder(method: Method) -> Method:
    """The method itself, or, for dense retrieval, the same without the encoder's weights."""
    return method.without_encoder() if isinstance(method, Dense) else method


def shape_of(model: str) -> Shape:
    """The shape of a known model or a local checkpoint; otherwise UserError naming the choices."""
    return read_shape(Path(model)) if Path(model).is_dir() else shapes.named(model)


def _shape_and_prompt(model: str, counts: str, new_tokens: int) -> tuple[Shape, Prompt]:
    """The model's shape, its context extended if needed, and a prompt of random tokens with the named lengths."""
    shape = shape_of(model)
    prompt = _random_prompt(shape, counts)
    return shapes.with_context(shape, lengths.load(counts, vocab=shape.vocab).total + new_tokens), prompt


def _random_prompt(shape: Shape, counts: str) -> Prompt:
    """A prompt of random tokens with the named lengths."""
    return Prompt(**lengths.random_segments(lengths.load(counts, vocab=shape.vocab), shape.vocab))


def _limits(new_tokens: int) -> Limits:
    return Limits(max_new_tokens=new_tokens, ignore_stop=True)
