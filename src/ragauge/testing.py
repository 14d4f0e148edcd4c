"""For tests of components: a tiny random Llama in the hub's folder layout with a tokenizer of
bytes, and questions.

A whole model in milliseconds, which answers nonsense;
`ragauge.load_model(write_checkpoint(folder))` loads it.
"""

import json
from pathlib import Path
from typing import Any

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>")
TITLES = ("Paris", "Rome", "Oslo", "Lima")


def write_checkpoint(folder: Path, **changes: Any) -> Path:
    """Two layers, random weights from seed 0; `changes` are keys of its LlamaConfig."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer()
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|end|>"),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**sizes | changes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """A token a byte, and three special ones with a chat template that uses them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytewise = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|end|>")
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    made.chat_template = CHAT
    return made


def write_questions(path: Path, count: int = 3) -> Path:
    """Questions in NQ-Open's official format, each over four documents, the first of them gold."""
    with open(path, "w", encoding="utf-8") as file:
        for number in range(2, count + 2):
            passages = [
                {
                    "title": title,
                    "text": f"{title} has {number + place} old bridges.",
                    "isgold": place == 0,
                }
                for place, title in enumerate(TITLES)
            ]
            question = {
                "question": f"which city has {number} bridges",
                "answers": ["Paris"],
                "ctxs": passages,
            }
            file.write(json.dumps(question) + "\n")
    return path
