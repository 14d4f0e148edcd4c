"""What will be read of a model, fact by fact, and what is refused and why: `ragauge doctor --model`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ragauge.errors import UserError


def model_findings(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield (topic, fact, reason) of a catalogued model, a prefixed source or a folder; a reason if refused."""
    from ragauge import assets

    try:
        folder = assets.resolve(source, where="--model")
    except UserError as error:
        yield "model", "refused", str(error)
        return
    yield "model", str(folder), ""
    for topic, describe in FACTS.items():
        try:
            yield topic, describe(folder), ""
        except UserError as error:
            yield topic, "refused", str(error)


def family(folder: Path) -> str:
    from ragauge.cost.flop import parameters
    from ragauge.engines.checkpoint import read_config, read_shape

    shape = read_shape(folder)
    kind = f"{read_config(folder)['model_type']}, read as {shape.family}"
    return f"{kind}: {parameters(shape):,} parameters, {shape.layers} layers, width {shape.d_model}"


def positions(folder: Path) -> str:
    from ragauge.engines.checkpoint import read_config, read_shape
    from ragauge.engines.frequencies import rope_type

    shape = read_shape(folder)
    if shape.position != "rope":
        return f"{shape.position}, without a limit of their own"
    scaled = f", divided by {shape.rope_scale:g}" if shape.rope_scale != 1 else ""
    part = f", {shape.rotary_dim} of {shape.head_dim} numbers a head" if shape.rotary_dim else ""
    return f"rotary, type {rope_type(read_config(folder))}, base {shape.rope_theta:g}{scaled}{part}"


def context(folder: Path) -> str:
    from ragauge.engines.checkpoint import read_config, read_shape
    from ragauge.engines.frequencies import rope_type

    shape, config = read_shape(folder), read_config(folder)
    trained = config.get("max_position_embeddings", shape.max_context)
    is_longer = trained > shape.max_context and rope_type(config) == "longrope"
    return f"{shape.max_context:,} tokens{f'; up to {trained:,} with max_context' if is_longer else ''}"


def quantization(folder: Path) -> str:
    from ragauge.engines import dequantization
    from ragauge.engines.checkpoint import read_config

    kind = dequantization.quantization(folder, read_config(folder))
    return "none" if kind is None else f"{kind.method}, multiplied out to floating point as it is read"


def tensors(folder: Path) -> str:
    """Read the checkpoint to nowhere, so that every tensor is looked for and none is left."""
    import torch

    from ragauge.engines.checkpoint import read_weights

    read_weights(folder, torch.float32, torch.device("meta"))
    return "every tensor has its place"


def end_of_text(folder: Path) -> str:
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.engines.checkpoint import read_shape

    tokenizer, ends = load_tokenizer(folder), read_shape(folder).eos
    return ", ".join(f"{tokenizer.convert_ids_to_tokens(end)} ({end})" for end in ends) or "none is stated"


def template(folder: Path) -> str:
    from ragauge.assets.tokenizer import load_tokenizer

    stated: Any = load_tokenizer(folder).chat_template
    if not stated:
        return "none; state template: alpaca or plain"
    return "chat, with a switch enable_thinking" if "enable_thinking" in str(stated) else "chat"


FACTS: dict[str, Callable[[Path], str]] = {
    "family": family,
    "positions": positions,
    "context": context,
    "quantization": quantization,
    "tensors": tensors,
    "end of text": end_of_text,
    "template": template,
}
