"""What will be read of a model, fact by fact, and what is refused and why: `ragauge doctor
--model`.
"""

from collections.abc import Callable, Iterator

from ragauge.errors import UserError


def model_findings(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield (topic, fact, reason) of a catalogued model, a prefixed source or a folder; a reason if
    refused.
    """
    import torch

    from ragauge.assets import resolver
    from ragauge.assets.tokenizer import check_rows, load_tokenizer
    from ragauge.cost.flop import parameters
    from ragauge.engines.checkpoint import read_config, read_shape, read_weights
    from ragauge.engines.dequantization import quantization
    from ragauge.engines.frequencies import rope_type
    from ragauge.methods.prompts.templates import TEMPLATE_DATE, wrapper

    try:
        folder = resolver.resolve(source, where="--model")
    except UserError as error:
        yield "model", "refused", str(error)
        return

    def positions() -> str:
        shape = read_shape(folder)
        scaled = f", divided by {shape.rope_scale:g}" if shape.rope_scale != 1 else ""
        scaled += (
            f", sliding windows of {shape.shortest_window} tokens" if shape.shortest_window else ""
        )
        base = f"rotary, type {rope_type(read_config(folder))}, base {shape.rope_theta:g}{scaled}"
        return base if shape.position == "rope" else shape.position

    def family() -> str:
        kind = (
            f"{read_config(folder)['model_type']}, read as {(shape := read_shape(folder)).family}"
        )
        return f"{kind}: {parameters(shape):,} parameters, {shape.layers} layers, width {shape.d_model}"

    def storage() -> str:
        kind = quantization(folder, read_config(folder))
        return f"{kind.method}, multiplied out to floating point" if kind else "none"

    def tensors() -> str:  # read to nowhere: every one is looked for, and none may be left
        read_weights(folder, torch.float32, torch.device("meta"))
        return "every tensor has its place"

    def end_of_text() -> str:
        names = load_tokenizer(folder).convert_ids_to_tokens
        return (
            ", ".join(f"{names(end)} ({end})" for end in read_shape(folder).eos) or "none is stated"
        )

    def tokens() -> str:
        tokenizer = load_tokenizer(folder)
        rows = read_shape(folder).vocab
        check_rows(tokenizer, rows, folder)
        return f"{len(tokenizer):,} of {rows:,} rows of the embedding"

    def template() -> str:
        if not (tokenizer := load_tokenizer(folder)).chat_template:
            return "none; state template: alpaca or plain"
        stated = str(tokenizer.chat_template)
        (_, task) = wrapper("chat", tokenizer, repeats=True)
        switch = ", with a switch enable_thinking" * ("enable_thinking" in stated)
        today = f", with the date {TEMPLATE_DATE} (template_date)" * ("strftime_now" in stated)
        return f"chat{switch}{today}{', a response begins in its thoughts' * task.rstrip().endswith('<think>')}"

    facts: dict[str, Callable[[], str]] = {
        "model": lambda: str(folder),
        "family": family,
        "positions": positions,
    }
    facts |= {
        "context": lambda: f"{read_shape(folder).max_context:,} tokens",
        "quantization": storage,
    }
    facts |= {
        "tensors": tensors,
        "end of text": end_of_text,
        "tokens": tokens,
        "template": template,
    }
    reasons = set[str]()
    for topic, describe in facts.items():
        try:
            yield topic, describe(), ""
        except UserError as error:
            yield topic, "refused", "as above" if str(error) in reasons else str(error)
            reasons.add(str(error))
