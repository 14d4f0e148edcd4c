"""Inspect a model before it is loaded: facts that will be read, and reasons to refuse it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from ragauge.assets import resolver
from ragauge.assets.tokenizer import check_rows, load_tokenizer
from ragauge.cost.flop import parameters
from ragauge.engines.checkpoint import read_config, read_shape, read_weights
from ragauge.engines.dequantization import quantization
from ragauge.engines.frequencies import rope_type
from ragauge.errors import UserError
from ragauge.methods.prompts.templates import TEMPLATE_DATE, wrapper


def model_findings(source: str, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield (topic, fact, reason why it is refused) of a catalogued model, a prefixed source or a
    folder.

    Args:
        where: begins the reason if there is no such model.
    """
    try:
        folder = resolver.resolve(source, where=where)
    except UserError as error:
        yield "model", "refused", str(error)
        return
    reasons = set[str]()
    for topic, describe in FACTS.items():
        try:
            yield topic, describe(folder), ""
        except UserError as error:
            yield topic, "refused", "as above" if str(error) in reasons else str(error)
            reasons.add(str(error))


def _family(folder: Path) -> str:
    shape = read_shape(folder)
    size = f"{parameters(shape):,} parameters, {shape.layers} layers, width {shape.d_model}"
    return f"{read_config(folder)['model_type']}, read as {shape.family}: {size}"


def _positions(folder: Path) -> str:
    shape = read_shape(folder)
    if shape.position != "rope":
        return str(shape.position)
    text = f"rotary, type {rope_type(read_config(folder))}, base {shape.rope_theta:g}"
    if shape.rope_scale != 1:
        text += f", divided by {shape.rope_scale:g}"
    if shape.shortest_window:
        text += f", sliding windows of {shape.shortest_window} tokens"
    return text


def _context(folder: Path) -> str:
    return f"{read_shape(folder).max_context:,} tokens"


def _quantization(folder: Path) -> str:
    kind = quantization(folder, read_config(folder))
    return f"{kind.method}, multiplied out to floating point" if kind else "none"


def _tensors(folder: Path) -> str:
    """Read to nowhere: every tensor is looked for, and none may be left."""
    read_weights(folder, torch.float32, torch.device("meta"))
    return "every tensor has its place"


def _end_of_text(folder: Path) -> str:
    tokenizer = load_tokenizer(folder)
    ends = [f"{tokenizer.convert_ids_to_tokens(end)} ({end})" for end in read_shape(folder).eos]
    return ", ".join(ends) or "none is stated"


def _tokens(folder: Path) -> str:
    tokenizer = load_tokenizer(folder)
    rows = read_shape(folder).vocab
    check_rows(tokenizer, rows, folder)
    return f"{len(tokenizer):,} of {rows:,} rows of the embedding"


def _template(folder: Path) -> str:
    tokenizer = load_tokenizer(folder)
    if not tokenizer.chat_template:
        return "none; state template: alpaca or plain"
    template = str(tokenizer.chat_template)
    _, task = wrapper("chat", tokenizer, repeats=True)
    text = "chat"
    if "enable_thinking" in template:
        text += ", with a switch enable_thinking"
    if "strftime_now" in template:
        text += f", with the date {TEMPLATE_DATE} (template_date)"
    if task.rstrip().endswith("<think>"):
        text += ", a response begins in its thoughts"
    return text


FACTS: dict[str, Callable[[Path], str]] = {
    "model": str,
    "family": _family,
    "positions": _positions,
    "context": _context,
    "quantization": _quantization,
    "tensors": _tensors,
    "end of text": _end_of_text,
    "tokens": _tokens,
    "template": _template,
}
