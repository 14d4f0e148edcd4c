"""GGUF files in the hub's layout: a folder of configuration and tokenizer, and the file; see
`gguf_weights`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ragauge.assets.gguf_weights import FILE, LATER, ROPE_DIVISORS, open_file, readers, tensors
from ragauge.assets.pretokenizers import WITH_BOS, set_splits, set_tokens
from ragauge.errors import UserError, error_line, unknown
from ragauge.io.files import os_errors_as_user_errors
from ragauge.io.jsonl import JsonObject

CONVERSION = 8  # raised when the result of a conversion changes
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # ends the name of one of several files
# that are read; Mistral and SmolLM files are of the first
DECODERS = ("llama", "qwen2", "qwen3", "gemma3")

TOKENS = "tokenizer.ggml.tokens"
TYPES = "tokenizer.ggml.token_type"
ENDS = ("eos", "eot", "eom")  # tokens that end a response: tokenizer.ggml.<...>_token_id
# and by their text, as llama.cpp has it: files of Qwen2.5 name one of the two that end its
# responses
END_MARKS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
)

# Llama 3's scaling of rotary frequencies, without its factor
LLAMA3 = {
    "rope_type": "llama3",
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
# Keys of these groups that are read; another would change what the model computes.
READ_KEYS = {
    "attention": {
        "head_count",
        "head_count_kv",
        "key_length",
        "value_length",
        "layer_norm_rms_epsilon",
        "sliding_window",
    },
    "rope": {
        "dimension_count",
        "freq_base",
        "scale_linear",
        "scaling.type",
        "scaling.factor",
        "scaling.finetuned",
        "scaling.original_context_length",
    },
}


def parts(path: Path) -> list[Path]:
    """Return the files of a model, of which this is one.

    Raises:
        UserError: some are missing, with their names.
    """
    match = PART.search(path.name)
    if not match:
        return [path]
    stem = path.name[: match.start()]
    count = int(match[2])
    paths = [
        path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        others = f" and {len(missing) - 3} more" * (len(missing) > 3)
        raise UserError(
            f"{path}: of its {count} files these are missing: {', '.join(missing[:3])}{others}"
        )
    return paths


def is_later_part(path: Path) -> bool:
    """Whether a file belongs to a model that another file of its folder begins."""
    match = PART.search(path.name)
    return match is not None and int(match[1]) > 1


def link(files: Sequence[Path], folder: Path) -> None:
    """Have a conversion's links point to these files, whose content it was made of, wherever others
    of that content were.

    Raises:
        UserError: a link points elsewhere and cannot be changed, as in a read-only cache.
    """
    for number, file in enumerate(files):
        path = folder / (LATER.format(f"{number:05d}") if number else FILE)
        if path.resolve() != file.resolve():
            with (
                os_errors_as_user_errors(path),
                TemporaryDirectory(dir=folder.parent) as unfinished,
            ):
                made = Path(unfinished, path.name)
                made.symlink_to(file.absolute())
                made.replace(path)


def convert(path: Path, folder: Path) -> None:
    """Write configuration and tokenizer of a model, in one file or several, to `folder`, and links
    to the files.

    Beyond what transformers reads: the scaling of positions, all tokens that end a response, how
    the tokenizer splits digits and whole words, and whether it begins a text.

    Raises:
        UserError: a file that is no GGUF, is cut short, or holds what transformers cannot read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    try:
        link(parts(path), folder)
        source = {"pretrained_model_name_or_path": str(folder), "gguf_file": FILE}
        header = read_header(folder / FILE)
        check_keys(header)
        tokenizer = AutoTokenizer.from_pretrained(**source)
        _set_splits(header, tokenizer)
        begins = header.values.get("tokenizer.ggml.pre") in WITH_BOS
        if header.values.get("tokenizer.ggml.add_bos_token", begins):
            tokenizer.add_bos_token = True
        set_tokens(
            tokenizer, header.tokens, header.values.get("tokenizer.ggml.add_space_prefix", True)
        )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(**source), dtype=torch.float32
            )
        check_tensors(header, folder / FILE, model)
        config = model.config
        config.tie_word_embeddings = header.is_tied
        config.rope_parameters = _rope_parameters(header, config)
    except MemoryError:
        raise
    # the tokenizers library raises the bare class, for a merge of a missing token
    except Exception as error:
        raise UserError(f"{path}: cannot be converted: {error_line(error)}") from error
    ends = [header.values.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS]
    ends += [number for number, (text, _) in enumerate(header.tokens) if text in END_MARKS]
    ends = list(dict.fromkeys(end for end in ends if end is not None))
    if len(ends) > 1:
        model.generation_config.eos_token_id = ends
    config.dtype = torch.float32
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Qwen's and Llama's own classes would put back their normalisation and cuts, whatever the file
    # says.
    settings = folder / "tokenizer_config.json"
    stated = {**json.loads(settings.read_bytes()), "tokenizer_class": "PreTrainedTokenizerFast"}
    settings.write_text(json.dumps(stated, indent=2), encoding="utf-8")


@dataclass(frozen=True)
class Header:
    values: Mapping[str, Any]  # numbers and strings by key; of an array, its length
    tensors: int  # their number
    is_tied: bool  # the output matrix is the embedding
    tokens: Sequence[tuple[str, int | None]]  # each with ggml's type, where it is stated
    rope_divisors: Any = None  # float32 array, where the file has the tensor


def read_header(path: Path) -> Header:
    """Read the keys and the tensors' sizes of a GGUF file.

    Raises:
        ValueError, LookupError: it is cut short.
        NotImplementedError: a type of blocks that is not read.
    """
    from gguf import GGUFValueType, dequantize

    reader = open_file(path)
    by_name = tensors(path)
    for kind, tensor in {tensor.tensor_type: tensor for tensor in by_name.values()}.items():
        dequantize(tensor.data[:1], kind)
    values = {}
    for key, field in reader.fields.items():
        is_array = field.types[:1] == [GGUFValueType.ARRAY]
        values[key] = len(field.data) if is_array else field.contents()
    tokens, types = (
        reader.fields[key].contents() if key in reader.fields else () for key in (TOKENS, TYPES)
    )
    divisors = by_name[ROPE_DIVISORS].data.copy() if ROPE_DIVISORS in by_name else None
    is_tied = "output.weight" not in by_name
    return Header(values, len(by_name), is_tied, list(zip_longest(tokens, types)), divisors)


def check_keys(header: Header) -> None:
    """Raise UserError for another architecture, and ValueError for a key of attention or positions
    that is not read, or more layers than the file has tensors.
    """
    kind = header.values.get("general.architecture")
    if kind not in DECODERS:
        raise unknown("general.architecture", kind, DECODERS)
    for group, read_keys in READ_KEYS.items():
        for key, value in header.values.items():
            name = key.removeprefix(f"{kind}.{group}.")
            is_read = name in read_keys and (name != "sliding_window" or kind == "gemma3")
            if name != key and not is_read:
                raise ValueError(f"the key {key} ({value}) is not read")
    layers = header.values.get(f"{kind}.block_count", 0)
    if layers > header.tensors:
        raise ValueError(f"{kind}.block_count: {layers:,} layers of {header.tensors:,} tensors")


def check_tensors(header: Header, path: Path, model: Any) -> None:
    """Compare the tensors of a file with those of the model that its keys describe.

    Raises:
        ValueError: A tensor is missing, of another size, or unknown: transformers would leave it
            out, or fill it with random numbers.
    """
    config = model.config
    kind = header.values["general.architecture"]
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if (count := header.values.get(f"{kind}.{name}", dim)) != dim:
            raise ValueError(f"{kind}.{name}: {count} where a head has {dim} numbers is not read")
    stored = {name: read().shape for name, read in readers(path, sizes_only=True).items()}
    for name, tensor in model.state_dict().items():
        size = stored.pop(name, None)
        if size is None and not (header.is_tied and name == "lm_head.weight"):
            raise ValueError(f"it has no tensor {name!r}")
        if size not in (None, tensor.shape):
            raise ValueError(
                f"tensor {name!r} is {tuple(size)} where its keys say {tuple(tensor.shape)}"
            )
    for name in stored:
        raise ValueError(f"tensor {name!r} is not of a plain {kind} decoder")


def _set_splits(header: Header, tokenizer: Any) -> None:
    """Cut texts as llama.cpp does: by a named rule, for vocabularies of bytes. Raises UserError for
    an unknown one.
    """
    kind = header.values.get("tokenizer.ggml.model")
    if kind == "gpt2":
        set_splits(tokenizer.backend_tokenizer, header.values.get("tokenizer.ggml.pre", "default"))
    elif kind != "llama":
        raise unknown("tokenizer.ggml.model", kind, ("gpt2", "llama"))


def _rope_parameters(header: Header, config: Any) -> JsonObject:
    """Return how positions are scaled, in the words of `config`; raises ValueError for an
    unsupported scaling.
    """
    prefix = f"{header.values['general.architecture']}.rope"
    kind = header.values.get(f"{prefix}.scaling.type", "linear")
    factor = header.values.get(
        f"{prefix}.scaling.factor", header.values.get(f"{prefix}.scale_linear", 1.0)
    )
    if kind not in ("none", "linear", "yarn") or not math.isfinite(factor) or factor < 1:
        raise ValueError(
            f"{prefix}.scaling: type {kind!r} and factor {factor!r}; read: none, linear, yarn, from 1 on"
        )
    if header.rope_divisors is None:
        scaled = {"rope_type": kind, "factor": factor}
        if kind == "yarn":
            trained = header.values.get(
                f"{prefix}.scaling.original_context_length", config.max_position_embeddings
            )
            scaled["original_max_position_embeddings"] = trained
        scaled = scaled if kind != "none" and factor > 1 else {}
        # the layers with a window are not scaled
        if "full_attention" in (stated := config.rope_parameters):
            return {**stated, "full_attention": {**stated["full_attention"], **scaled}}
        return {**stated, **scaled}
    if kind == "yarn":
        raise ValueError(
            f"{prefix}.scaling: type 'yarn' together with the tensor {ROPE_DIVISORS!r} is not supported"
        )

    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    # Llama 3's scaling, of which a file states no more
    scales = torch.from_numpy(header.rope_divisors)
    plain = config.rope_parameters["rope_theta"] ** (
        -torch.arange(0, 2 * len(scales), 2) / (2 * len(scales))
    )
    config.rope_parameters = {
        **config.rope_parameters,
        **LLAMA3,
        "factor": float(scales.max().round()),
    }
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    if scales.dtype != torch.float32 or not torch.allclose(frequencies, plain / scales, rtol=1e-3):
        raise ValueError(f"tensor {ROPE_DIVISORS!r} does not scale positions as Llama 3 does")
    return config.rope_parameters
