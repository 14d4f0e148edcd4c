"""Tokenizers of checkpoint folders, by transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import UserError

# A checkpoint's class -> the class of transformers that is opened by itself: tokenizer.json tells it everything.
DIRECT = {
    "PreTrainedTokenizerFast": "PreTrainedTokenizerFast",
    "TokenizersBackend": "PreTrainedTokenizerFast",
    "BertTokenizer": "BertTokenizer",
}


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer; no code of the checkpoint is run.

    Raises:
        UserError: there is none, or transformers cannot read it.
    """
    import transformers

    try:
        # AutoTokenizer reads the model's configuration too, for which transformers loads torch's compiler: seconds.
        path = folder / "tokenizer_config.json"
        named = json.loads(path.read_bytes()).get("tokenizer_class", "") if path.is_file() else ""
        loader = getattr(transformers, DIRECT.get(named, "AutoTokenizer"))
        return loader.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizers library raises the bare class
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{folder}: transformers finds no tokenizer that it can read ({reason})") from None


def padded(ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as a batch: ids (text, token) int64, zero beyond a text's end, and a mask of tokens, bool."""
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    batch = np.zeros(mask.shape, dtype=np.int64)
    batch[mask] = np.concatenate(ids)
    return batch, mask
