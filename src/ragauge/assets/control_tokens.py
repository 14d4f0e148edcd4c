"""Control tokens in texts: those that a template writes are tokens, those that a document quotes
are plain words.
"""

import json
import re
from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from ragauge.errors import UserError

PRIVATE_PLANE = 0xF0000  # code points without a meaning, one for each of the basic plane


class TemplateText(str):
    """Words of a template or an instruction, whose control tokens are tokens; in any other text
    they are words.
    """

    __slots__ = ()


def plain_reader(tokenizer: Any, texts: Iterable[str]) -> Any:
    """Return the tokenizer, or a copy of it that reads the control tokens in these texts as plain
    words.
    """
    return _renamed(tokenizer, _names(tokenizer)) if count_quoted(tokenizer, texts) else tokenizer


def reader(tokenizer: Any, pieces: Sequence[str]) -> tuple[Any, str]:
    """Return a tokenizer and a text for it that give the ids and the offsets of the pieces as one
    text; a control token counts only in `TemplateText`.

    Raises:
        UserError: another piece has one and the tokenizer is not of `tokenizers`.
    """
    text = "".join(pieces)
    names = _names(tokenizer)
    pattern = _pattern(names)
    origins = "".join(
        ("t" if isinstance(piece, TemplateText) else "q") * len(piece) for piece in pieces
    )

    def is_quoted(match: re.Match[str]) -> bool:
        return "q" in origins[slice(*match.span())]

    if not names or not any(map(is_quoted, pattern.finditer(text))):
        return tokenizer, text
    return _renamed(tokenizer, names), pattern.sub(
        lambda m: m[0] if is_quoted(m) else _alias(m[0]), text
    )


def count_quoted(tokenizer: Any, texts: Iterable[str]) -> int:
    """Count the control tokens that texts quote."""
    names = _names(tokenizer)
    return sum(len(_pattern(names).findall(text)) for text in texts) if names else 0


def _names(tokenizer: Any) -> frozenset[str]:
    return _control_tokens(tokenizer, str(getattr(tokenizer, "chat_template", None)))


@lru_cache(maxsize=4)
def _control_tokens(tokenizer: Any, template: str) -> frozenset[str]:
    """Return the special tokens, those like `<|this|>`, and those in brackets that the chat
    template writes.
    """
    added = [
        (token.content, token.special)
        for token in getattr(tokenizer, "added_tokens_decoder", {}).values()
    ]
    return frozenset(
        name
        for name, is_special in added
        if (is_special and name.strip())
        or re.fullmatch(r"<[|｜].+[|｜]>", name)
        or (re.fullmatch(r"<.+>|\[.+\]", name) and name in template)
    )


@lru_cache(maxsize=4)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))


def _alias(name: str) -> str:
    """Return a name of the same length that no text has."""
    return "".join(chr(PRIVATE_PLANE + ord(character) % 0x10000) for character in name)


@lru_cache(maxsize=4)
def _renamed(tokenizer: Any, names: frozenset[str]) -> Any:
    """Return a copy of a tokenizer that knows its control tokens by their aliases, so that no other
    text gives them.
    """
    from tokenizers import Tokenizer

    if not tokenizer.is_fast:
        raise UserError(
            f"a {type(tokenizer).__name__} cannot read a control token in a text as plain words"
        )
    aliases = {name: _alias(name) for name in names}
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in state["added_tokens"]:
        token["content"] = aliases.get(token["content"], token["content"])
    model = state["model"]
    if isinstance(vocabulary := model["vocab"], dict):
        model["vocab"] = {aliases.get(token, token): number for token, number in vocabulary.items()}
    else:  # of a Unigram, with scores
        model["vocab"] = [[aliases.get(token, token), score] for token, score in vocabulary]
    if "merges" in model:
        model["merges"] = [(a, b) for a, b in model["merges"] if names.isdisjoint((a, b, a + b))]
    if "unk_token" in model:
        model["unk_token"] = aliases.get(model["unk_token"], model["unk_token"])
    renamed = copy(tokenizer)
    renamed._tokenizer = Tokenizer.from_str(json.dumps(state))
    return renamed
