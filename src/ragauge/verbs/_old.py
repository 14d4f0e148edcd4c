"""Spellings of the version before: they work, print one warning line, and are unknown from `REMOVED_IN` on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import ragauge
from ragauge.errors import UserError

REMOVED_IN = "0.2.0"


class Now(NamedTuple):
    """What an option is today."""

    option: str
    prefix: str = ""  # before its value

    @property
    def told(self) -> str:
        return f"{self.option} {self.prefix}KEY=VALUE" if self.prefix else self.option


_OF_A_RUN = {"--run-config": Now("--config"), "--out-dir": Now("--out")}
_OF_QUESTIONS = {"--option": Now("--set", "dataset.")}

RENAMED: Mapping[str, Mapping[str, Now]] = {
    "render": _OF_A_RUN,
    "report": _OF_A_RUN,
    "provenance": _OF_A_RUN,
    "run": _OF_QUESTIONS | {"--documents": Now("--document-store"), "--documents-gb": Now("--document-store-gb")},
    "data": _OF_QUESTIONS,
    "time": _OF_QUESTIONS,
    "load": _OF_QUESTIONS,
    "stream": _OF_QUESTIONS,
    "index": {"--set-index": Now("--set", "index."), "--report": Now("--out")},
    "pipeline": {"--pipeline": Now("--entry")},
    "staleness": {"--label": Now("--entry")},
    "sft": {"--training": Now("--entry")},
    "fetch": {"--manifest": Now("--out")},
    "query": {"--nprobe": Now("--effort"), "--tokens": Now("--token-ids")},
}
_OF_INDEX = {"--out": Now("--database"), "--database": Now("--entry")}  # where --out was the database's folder
_WITH_INDEX_FOLDER = ("serve", "pipeline", "retrofit")  # --index was a folder, <database>/indexes/<label>


def understood() -> bool:
    """Whether this version still takes them."""
    return _numbers(ragauge.__version__) < _numbers(REMOVED_IN)


def today(verb: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of a verb in today's spelling, and what is to be said of each old one.

    Raises:
        UserError: `serve --index` names a folder that is none of an index.
    """
    if not understood():
        return list(arguments), []
    renamed = dict(RENAMED.get(verb, {}))
    if verb == "index" and _names_the_database_by_out(arguments):
        renamed |= _OF_INDEX
    written, told = list[str](), list[str]()
    waiting: Now | None = None  # the option whose value comes next
    for argument in arguments:
        option, equals, value = argument.partition("=")
        now = renamed.get(option) if argument.startswith("--") else None
        if now:
            told.append(f"{option} is now {now.told}")
            written.append(f"{now.option}={now.prefix}{value}" if equals else now.option)
        else:
            written.append(waiting.prefix + argument if waiting else argument)
        waiting = now if now and not equals else None
    if verb in _WITH_INDEX_FOLDER:
        written, of_index = _index_by_label(verb, written)
        told += of_index
    return written, list(dict.fromkeys(told))


def now_called(verb: str, option: str) -> str | None:
    """Today's spelling of an option that is gone."""
    renamed = RENAMED.get(verb, {}).get(option)
    return renamed.option if renamed else None


def _names_the_database_by_out(arguments: Sequence[str]) -> bool:
    out = _value(arguments, "--out")
    return out is not None and not (arguments[0] == "recall" and out.endswith(".json"))


def _index_by_label(verb: str, arguments: list[str]) -> tuple[list[str], list[str]]:
    """`--index` as a label of `--database`; where a folder belongs to another database, its whole path."""
    index, database = _value(arguments, "--index"), _value(arguments, "--database")
    if index is None or ("/" not in index and database is not None):
        return arguments, []
    folder = Path(index).absolute()
    if verb != "serve":
        if database is None:  # required, as the parser will say
            return arguments, []
        of_it = Path(database).absolute() / "indexes" == folder.parent
        return _replaced(arguments, "--index", folder.name if of_it else str(folder)), ["--index is now a label"]
    if folder.parent.name != "indexes" and "/" in index:
        raise UserError(f"--index {index}: must be an index of --database, or its folder <database>/indexes/<label>")
    if folder.parent.name != "indexes":
        return arguments, []
    found = _replaced(arguments, "--index", folder.name)
    return ["--database", str(folder.parent.parent), *found], ["--index FOLDER is now --database FOLDER --index LABEL"]


def _value(arguments: Sequence[str], option: str) -> str | None:
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def _replaced(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """The arguments with one value of an option replaced."""
    written, old = list[str](), _value(arguments, option)
    for place, argument in enumerate(arguments):
        if argument == f"{option}={old}":
            written.append(f"{option}={value}")
        elif place and arguments[place - 1] == option:
            written.append(value)
        else:
            written.append(argument)
    return written


def _numbers(version: str) -> list[int]:
    """`0.2.0` -> [0, 2, 0]; what is no number ends it."""
    return [int(part) for part in version.split(".")[:3] if part.isdecimal()]
