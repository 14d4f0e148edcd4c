"""Tokenizers of checkpoint folders, by transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.assets.control_tokens import plain_reader as plain_reader
from ragauge.errors import UserError, error_line

# A checkpoint's class -> the class of transformers that is opened by itself: tokenizer.json tells
# it everything.
DIRECT = {
    "PreTrainedTokenizerFast": "PreTrainedTokenizerFast",
    "TokenizersBackend": "PreTrainedTokenizerFast",
    "BertTokenizer": "BertTokenizer",
}


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer; no code of it is run.

    Raises:
        UserError: none, or transformers cannot read it.
    """
    import transformers

    try:
        # AutoTokenizer reads the model's configuration too, for which transformers loads torch's
        # compiler: seconds.
        path = folder / "tokenizer_config.json"
        named = json.loads(path.read_bytes()).get("tokenizer_class", "") if path.is_file() else ""
        loader = getattr(transformers, DIRECT.get(named, "AutoTokenizer"))
        return loader.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizers library raises the bare class
        raise UserError(
            f"{folder}: transformers finds no tokenizer that it can read ({error_line(error)})"
        ) from None


def check_rows(tokenizer: Any, rows: int, where: object) -> None:
    """Raise UserError if texts may have tokens beyond an embedding's rows; control tokens that
    nobody writes do not.
    """
    added = tokenizer.added_tokens_decoder
    if max([len(tokenizer) - 1, *added]) < rows:
        return
    template = str(tokenizer.chat_template)
    beyond = [(n, t) for t, n in tokenizer.get_vocab().items() if n >= rows]
    named = [t for n, t in sorted(beyond) if t in template or not (n in added and added[n].special)]
    if named:
        raise UserError(
            f"{where}: the embedding has {rows:,} rows, and none for {len(named)} "
            f"token{'s' * (len(named) > 1)} of its tokenizer, the first {named[0]!r}"
        )


def padded(ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as a batch: ids (text, token) int64, zero beyond a text's end, and a mask of
    tokens, bool.
    """
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    batch = np.zeros(mask.shape, dtype=np.int64)
    batch[mask] = np.concatenate(ids)
    return batch, mask
