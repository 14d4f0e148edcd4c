"""SmolLM3: Llama in which every few layers have no positions."""

from dataclasses import replace

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config, windows
from ragauge.errors import UserError

MODEL_TYPES = ("smollm3",)
INTERVAL = 4  # every fourth layer has no positions where a config does not say
THETA = 2000000.0
NAMES = llama.NAMES


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face SmolLM3Config describes."""
    layers = config["num_hidden_layers"]
    interval = config.get("no_rope_layer_interval", INTERVAL)
    rotated = config.get("no_rope_layers")  # 1 for a layer with positions, whatever the key says
    if rotated is None:
        rotated = [(layer + 1) % interval != 0 for layer in range(layers)]
    if len(rotated) < layers:
        raise UserError(f"no_rope_layers: {len(rotated)} values for {layers} layers")
    unrotated = tuple(layer for layer in range(layers) if not rotated[layer])
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    return replace(
        llama.llama_shape({"tie_word_embeddings": True, **config}, default_theta=THETA),
        family="smollm3",
        unrotated=unrotated,
        windows=windows(config, window, lambda layer: window is not None and layer in unrotated),
    )
