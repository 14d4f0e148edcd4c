"""A checkpoint's tokenizer, whichever class it names, is the one that transformers would choose."""

import json
import string
import subprocess
import sys

import pytest
from transformers import AutoTokenizer, BertTokenizer

from ragauge.assets.tokenizer import DIRECT, load_tokenizer
from ragauge.testing import write_checkpoint


@pytest.fixture(params=[*DIRECT, "GPT2Tokenizer", None])
def folder(request, tmp_path):
    """A checkpoint whose tokenizer is of this class; None names none."""
    write_checkpoint(tmp_path)
    if request.param == "BertTokenizer":
        write_word_pieces(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_bytes()) | {"tokenizer_class": request.param}
    if request.param is None:
        del settings["tokenizer_class"]
    path.write_text(json.dumps(settings))
    return tmp_path


def test_is_what_transformers_would_choose(folder):
    loaded = load_tokenizer(folder)
    expected = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = "Which river runs\n\n through 3.14 Viennas?  né"
    assert type(loaded) is type(expected)
    assert loaded(text)["input_ids"] == expected(text)["input_ids"]
    for fact in ("special_tokens_map", "chat_template", "model_max_length", "padding_side"):
        assert getattr(loaded, fact) == getattr(expected, fact)


def test_opening_a_checkpoint_does_not_wait_for_torch_and_its_compiler(tmp_path):
    write_checkpoint(tmp_path)
    code = f"""
import sys
from pathlib import Path
from ragauge.assets.tokenizer import load_tokenizer
load_tokenizer(Path({str(tmp_path)!r}))
assert "torch" not in sys.modules
from ragauge.engines.loading import load_lm
load_lm({str(tmp_path)!r})
assert "torch" in sys.modules and "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def write_word_pieces(folder):
    """In place of the checkpoint's tokenizer, one of BERT's kind."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [f"{joined}{letter}" for joined in ("", "##") for letter in string.ascii_lowercase]
    pieces = [*special, "river", "runs", *letters]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=77).save_pretrained(folder)
