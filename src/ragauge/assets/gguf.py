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
from typing import Any

from ragauge.assets.pretokenizers import WITH_BOS, set_splits, set_tokens
from ragauge.errors import UserError, error_line, unknown

CONVERSION = 8  # raised when the result of a conversion changes
FILE = "model.gguf"  # in the folder of a converted model: a link, or several files joined
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # ends the name of one of several files
# that are read; Mistral and SmolLM files are of the first
DECODERS = ("llama", "qwen2", "qwen3", "gemma3")
# of all models of these but Gemma 3 27B, which has another scale of scores
HEAD_DIMS = {"qwen3": 128, "gemma3": 256}

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

ROPE_DIVISORS = "rope_freqs.weight"  # what each rotary frequency is divided by
# Llama 3's scaling of rotary frequencies, without its factor
LLAMA3: dict[str, Any] = {"rope_type": "llama3", "original_max_position_embeddings": 8192}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Keys of these groups that are read; another would change what the model computes.
READ_KEYS = {
    "attention": {
        "head_count",
        "head_count_kv",
        "key_length",
        "value_length",
        "layer_norm_rms_epsilon",
    }
    | {"sliding_window"},
    "rope": {
        "dimension_count",
        "freq_base",
        "scale_linear",
        "scaling.type",
        "scaling.factor",
        "scaling.finetuned",
    }
    | {"scaling.original_context_length"},
}


def parts(path: Path) -> list[Path]:
    """Return the files of a model, of which this is one. Raises UserError that names the missing
    ones.
    """
    if not (match := PART.search(path.name)):
        return [path]
    stem = path.name[: match.start()]
    count = int(match[2])
    paths = [
        path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    ]
    if missing := [part.name for part in paths if not part.is_file()]:
        others = f" and {len(missing) - 3} more" * (len(missing) > 3)
        raise UserError(
            f"{path}: of its {count} files these are missing: {', '.join(missing[:3])}{others}"
        )
    return paths


def is_later_part(path: Path) -> bool:
    """Whether a file belongs to a model that another file of its folder begins."""
    return (match := PART.search(path.name)) is not None and int(match[1]) > 1


def convert(path: Path, folder: Path) -> None:
    """Write configuration and tokenizer of a model, in one file or several, to `folder`, and a link
    to the file.

    Beyond what transformers reads: the scaling of positions, all tokens that end a response, how
    the tokenizer splits digits and whole words, and whether it begins a text.

    Raises UserError for a file that is no GGUF, is cut short, or holds what transformers cannot
    read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    try:
        if len(files := parts(path)) == 1:
            (folder / FILE).symlink_to(path.absolute())
        else:
            _join(files, folder / FILE)
        source = {"pretrained_model_name_or_path": str(folder), "gguf_file": FILE}
        header = read_header(folder / FILE)
        check_decoder(header)
        tokenizer = AutoTokenizer.from_pretrained(**source)
        _set_splits(header, tokenizer)
        if header.values.get(
            "tokenizer.ggml.add_bos_token", header.values.get("tokenizer.ggml.pre") in WITH_BOS
        ):
            tokenizer.add_bos_token = True
        set_tokens(
            tokenizer, header.tokens, header.values.get("tokenizer.ggml.add_space_prefix", True)
        )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(**source), dtype=torch.float32
            )
        config = model.config
        config.rope_parameters = _rope_parameters(header, config)
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # the tokenizers library raises the bare class, for a merge of a missing token
        raise UserError(f"{path}: cannot be converted: {error_line(error)}") from error
    ends = [header.values.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS]
    ends += [number for number, (text, _) in enumerate(header.tokens) if text in END_MARKS]
    if len(known := list(dict.fromkeys(end for end in ends if end is not None))) > 1:
        model.generation_config.eos_token_id = known
    config.dtype, config.architectures = torch.float32, [type(model).__name__]
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
    sizes: Mapping[str, tuple[int, ...]]  # of tensors, the slowest dimension first, as torch has it
    tokens: Sequence[tuple[str, int | None]]  # each with ggml's type, where it is stated
    rope_divisors: Any = None  # float32 array, where the file has the tensor


def read_header(path: Path) -> Header:
    """Read the keys and the tensors' sizes of a GGUF file. Raises ValueError or LookupError if it
    is cut short, NotImplementedError for a type of blocks that is not read.
    """
    from gguf import GGUFValueType, dequantize

    reader = open_file(path)
    for kind, tensor in {tensor.tensor_type: tensor for tensor in reader.tensors}.items():
        dequantize(tensor.data[:1], kind)
    values = {}
    for key, field in reader.fields.items():
        is_array = field.types[:1] == [GGUFValueType.ARRAY]
        values[key] = len(field.data) if is_array else field.contents()
    tokens, types = (
        reader.fields[key].contents() if key in reader.fields else () for key in (TOKENS, TYPES)
    )
    sizes = {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in reader.tensors}
    divisors = next(
        (tensor.data.copy() for tensor in reader.tensors if tensor.name == ROPE_DIVISORS), None
    )
    return Header(values, sizes, list(zip_longest(tokens, types)), divisors)


def _join(files: Sequence[Path], target: Path) -> None:
    """Write the parts of a model as one file; raises ValueError if there are other tensors than it
    should have.
    """
    from gguf import GGUFValueType, GGUFWriter

    readers = [open_file(file) for file in files]
    fields = dict(readers[0].fields)
    writer = GGUFWriter(target, fields.pop("general.architecture").contents())
    writer.data_alignment = readers[0].alignment
    for key, field in fields.items():
        if not key.startswith(("GGUF.", "split.")):
            is_array = field.types[0] == GGUFValueType.ARRAY
            writer.add_key_value(
                key, field.contents(), field.types[0], field.types[-1] if is_array else None
            )
    tensors = [tensor for reader in readers for tensor in reader.tensors]
    if (stated := fields.get("split.tensors.count")) and stated.contents() != len(tensors):
        raise ValueError(
            f"its files have {len(tensors)} tensors where its keys say {stated.contents()}"
        )
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def open_file(path: Path) -> Any:
    """Open a GGUF file; raises ValueError if it is cut short."""
    import numpy as np
    from gguf import GGUFReader

    class BoundedReader(GGUFReader):
        """Refuses lengths beyond the end of the file, for which the library would loop without end."""

        data: Any

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            # whose slices take a fraction of the time of those of a memmap
            self.data = np.asarray(self.data)
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError(
                    f"a value ends beyond byte {len(self.data):,}, the end of the file"
                )
            return super()._get(offset, dtype, count, override_order)

    return BoundedReader(path)


def check_decoder(header: Header) -> None:
    """Compare the tensors of a file with the sizes that its keys state. Raises UserError: another
    architecture; ValueError: a tensor is missing, of another size, or unknown, or a key of
    attention or positions is unknown: transformers would leave it out, or fill it with random
    numbers.
    """
    kind = header.values.get("general.architecture")
    if kind not in DECODERS:
        raise unknown("general.architecture", kind, DECODERS)
    expected = _expected(header)
    for group, known in READ_KEYS.items():
        for key in header.values:
            name = key.removeprefix(f"{kind}.{group}.")
            if name != key and (
                name not in known or (name == "sliding_window" and kind != "gemma3")
            ):
                raise ValueError(f"the key {key} ({header.values[key]}) is not read")
    for name, size in expected.items():
        if name not in header.sizes:
            raise ValueError(f"it has no tensor {name!r}")
        if header.sizes[name] != size:
            raise ValueError(f"tensor {name!r} is {header.sizes[name]} where its keys say {size}")
    optional = {"output.weight": expected["token_embd.weight"], ROPE_DIVISORS: None}
    for name in header.sizes.keys() - expected.keys():
        if name not in optional or optional[name] not in (None, header.sizes[name]):
            raise ValueError(f"tensor {name!r} is not of a plain {kind} decoder")


def _expected(header: Header) -> dict[str, tuple[Any, ...]]:
    """Return the sizes of the tensors that the file must have."""
    kind = header.values["general.architecture"]

    def key(name: str, default: int | None = None) -> int:
        value = header.values.get(f"{kind}.{name}", default)
        if type(value) is not int or not 0 < value < 1 << 32:
            raise ValueError(f"{kind}.{name}: {str(value)[:40]} is not a valid model size")
        return value

    layers, d, ffn, heads = map(
        key, ("block_count", "embedding_length", "feed_forward_length", "attention.head_count")
    )
    kv_heads = key("attention.head_count_kv", heads)
    dim = key("attention.key_length", max(1, d // heads))
    if dim != HEAD_DIMS.get(kind, dim):
        raise ValueError(
            f"{kind}.attention.key_length: {dim} numbers of a head; read are {HEAD_DIMS[kind]}"
        )
    if layers > len(header.sizes):
        raise ValueError(f"{kind}.block_count: {layers:,} layers of {len(header.sizes):,} tensors")
    for name in ("attention.value_length", "rope.dimension_count"):
        if key(name, dim) != dim:
            raise ValueError(
                f"{kind}.{name}: {key(name)} where a head has {dim} numbers is not read"
            )
    rows = {"attn_q": heads * dim, "attn_k": kv_heads * dim, "attn_v": kv_heads * dim}
    layer: dict[str, tuple[int, ...]] = {"attn_norm.weight": (d,), "ffn_norm.weight": (d,)}
    layer |= {"attn_output.weight": (d, heads * dim), "ffn_down.weight": (d, ffn)}
    layer |= {"ffn_gate.weight": (ffn, d), "ffn_up.weight": (ffn, d)}
    layer |= {f"{name}.weight": (count, d) for name, count in rows.items()}
    layer |= {f"{name}.bias": (count,) for name, count in rows.items()} if kind == "qwen2" else {}
    if kind in HEAD_DIMS:
        layer |= {"attn_q_norm.weight": (dim,), "attn_k_norm.weight": (dim,)}
    if kind == "gemma3":
        layer |= {"post_attention_norm.weight": (d,), "post_ffw_norm.weight": (d,)}
    blocks = {
        f"blk.{number}.{name}": size for number in range(layers) for name, size in layer.items()
    }
    embedding = header.values.get(TOKENS), d
    return {"token_embd.weight": embedding, "output_norm.weight": (d,), **blocks}


def _set_splits(header: Header, tokenizer: Any) -> None:
    """Cut texts as llama.cpp does: by a named rule, for vocabularies of bytes. Raises UserError for
    an unknown one.
    """
    kind = header.values.get("tokenizer.ggml.model")
    if kind == "gpt2":
        set_splits(tokenizer.backend_tokenizer, header.values.get("tokenizer.ggml.pre", "default"))
    elif kind != "llama":
        raise unknown("tokenizer.ggml.model", kind, ("gpt2", "llama"))


def _rope_parameters(header: Header, config: Any) -> dict[str, Any]:
    """Return how positions are scaled, in the words of `config`; raises ValueError for an
    unsupported scaling.
    """
    prefix = f"{header.values.get('general.architecture')}.rope"
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
            f"{prefix}.scaling: type 'yarn' beside the tensor {ROPE_DIVISORS!r} is not read"
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
    return dict(config.rope_parameters)
