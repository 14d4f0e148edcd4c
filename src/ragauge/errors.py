"""Errors that a user caused, and how they are worded: the value, the place, the choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the user's: the command line prints its text in one line and exits with 2."""


class UnsupportedError(UserError):
    """A combination that cannot work (a method on a model, say); tables show its text in place of a number."""


class SettingError(UserError):
    """A value of one key that does not go with the others. What reads the settings puts the key's place before it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key, self.message = key, message


def unknown(what: str, value: object, choices: Iterable[str], where: str = "") -> UserError:
    """The error for a name that is not one of `choices`.

    Example: `config.yaml: methods.sp_k4.method: unknown method 'superpositon'; did you mean 'superposition'?
    known: naive, prompt_cache, superposition`.
    """
    known = sorted(choices)
    close = difflib.get_close_matches(str(value), known, n=1)
    place = f"{where}: " if where else ""
    hint = f" did you mean {close[0]!r}?" if close else ""
    return UserError(f"{place}unknown {what} {value!r};{hint} known: {', '.join(known) or 'none'}")
