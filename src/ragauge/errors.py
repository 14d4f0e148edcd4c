"""Errors that a user caused; their text names the value, the place and the choices."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

AFFECTS_RESULTS = False


class UserError(ValueError):
    """A user's mistake; the command line prints its text in one line and exits with 2."""


class UnsupportedError(UserError):
    """A combination that cannot work, such as a method on a model; tables show the text in place of
    a number.
    """


class SettingError(UserError):
    """A value of one key that does not fit the others; the reader of the settings adds the key's
    place.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key
        self.message = message


def unknown(what: str, value: object, choices: Iterable[str], where: str = "") -> UserError:
    """Return the error for a name that is not one of `choices`, such as `config.yaml:
    methods.sp_k4.method: unknown method 'superpositon'; did you mean 'superposition'? known: naive,
    prompt_cache, superposition`.
    """
    known = sorted(choices)
    near = meant(str(value), known)
    place = f"{where}: " if where else ""
    hint = f" did you mean {near!r}?" if near else ""
    return UserError(f"{place}unknown {what} {value!r};{hint} known: {', '.join(known) or 'none'}")


def meant(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice closest to a misspelled name, in any case; None where none is close."""
    folded = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(value.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def in_any_case(value: str, choices: Iterable[str]) -> str:
    """Return the only choice that equals a name in another case; else the name itself."""
    known = list(choices)
    same = [choice for choice in known if choice.casefold() == value.casefold()]
    return same[0] if value not in known and len(same) == 1 else value


def first_problem(error: Any) -> str:
    """Return the first problem of pydantic's ValidationError, in one line with its place."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return ": ".join(filter(None, (place, first["msg"].removeprefix("Value error, "))))


@contextmanager
def validating(place: str, advice: str = "") -> Iterator[None]:
    """Raise pydantic's ValidationError in the block as a UserError: the place, the first problem and
    the advice.
    """
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}{advice}") from error


def error_line(error: Exception, place: int = 0) -> str:
    """Return the first line of an error's text, or the line at another place; its type where it has
    no text.
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[place].strip()


def in_one_line(error: BaseException, most: int | None = None) -> str:
    """Return an error's text in one line of at most so many characters; its type where it has no
    text.
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


# an extra of pyproject.toml -> the names by which the packages that it installs are imported
EXTRA_PACKAGES = {
    "report": "matplotlib mpld3",
    "retrieval": "datasketch faiss onnx onnxruntime onnxscript",
    "service": "grpc grpc_health",
    "study": "lxml_html_clean mammoth pypdf trafilatura",
    "training": "deepspeed",
    "workflow": "datasets sklearn snakemake",
    "punkt": "punkt",
}
EXTRAS = {
    package: extra for extra, packages in EXTRA_PACKAGES.items() for package in packages.split()
}
INSTEAD = {"onnxruntime": "; with a GPU: 'ragauge[gpu]'"}


@contextmanager
def panics_as_user_errors() -> Iterator[None]:
    """Turn a panic of a library in Rust, as at a tokenizer's pattern that takes too long on a text,
    into a UserError. Its class is not derived from Exception, and cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"the tokenizer cannot read this text: {in_one_line(error)}") from None


class MissingExtraError(UserError):
    """The packages of a feature are not installed."""


@contextmanager
def explain_missing_extra(needed: str = "") -> Iterator[None]:
    """Turn the import error of a package of an extra into one line that names the extra. `needed`:
    begins the line, as in `figures need matplotlib`; default: `this needs the package X`.

    Raises:
        MissingExtraError: in place of ModuleNotFoundError, which is left alone for all other
            packages.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        install = f"pip install 'ragauge[{EXTRAS[module]}]'{INSTEAD.get(module, '')}"
        needed = needed or f"this needs the package {module!r}"
        raise MissingExtraError(f"{needed}, which is not installed: {install}") from error
