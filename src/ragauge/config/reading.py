"""Reads settings, and reports a mistake in one line that names place, value and choices."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from ragauge.errors import SettingError, UserError, in_one_line
from ragauge.io import safe_yaml

AFFECTS_RESULTS = False

Settings = TypeVar("Settings", bound=BaseModel)
# What pydantic puts into the path of a mistake besides the keys of the file.
_NOT_KEYS = {
    "[key]",
    "list[str]",
    "constrained-int",
    "literal['all']",
    "literal['auto']",
    "literal['hide']",
    "literal['steady']",
    "one protocol",
    "several protocols",
}


def read(path: Path) -> dict[str, Any]:
    """The mapping of one YAML file.

    Raises:
        UserError: no such file, no valid YAML, a key twice, not a mapping.
    """
    try:
        data = safe_yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: {problem or in_one_line(error)}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: must hold keys and values, as in `run: default`")
    return data


def checked(model: type[Settings], data: Mapping[str, Any], place: str) -> Settings:
    """The settings of a mapping.

    Raises:
        UserError: the first mistake: `<place>: <path of the key>: what is wrong`.
    """
    try:
        return model.model_validate(dict(data))
    except (
        UnicodeError
    ):  # half of a surrogate pair, as an escape can write it; pydantic cannot tell where
        raise UserError(
            f"{place}: holds an escape that is no character (\\ud800 to \\udfff)"
        ) from None
    except ValidationError as error:
        path, message = mistake(error)
        raise UserError(": ".join(filter(None, (place, ".".join(path), message)))) from error


def checked_options(model: type[Settings], given: Mapping[str, Any]) -> Settings:
    """The settings that options of a command line state as text.

    Raises:
        UserError: `--<option>: what is wrong`.
    """
    try:
        return model.model_validate(dict(given), strict=False)
    except ValidationError as error:
        path, message = mistake(error)
        raise UserError(f"--{path[0].replace('_', '-')}: {message}" if path else message) from error


def mistake(error: ValidationError) -> tuple[list[str], str]:
    """The path of the first mistake's key, and what is wrong with its value."""
    first = error.errors()[0]
    path = _keys(first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, SettingError):
        return [*path, cause.key], cause.message
    if isinstance(cause, UserError):
        return path, str(cause)
    if first["type"] == "missing":
        return path, "is missing"
    if first["type"] == "string_pattern_mismatch":
        return (
            path,
            f"{first['input']!r} must be made of letters, digits, '.', '_' and '-', at most 100 of them",
        )
    # one for each type that it may have
    same = [one["msg"] for one in error.errors() if _keys(one["loc"]) == path]
    texts = [
        text.removeprefix("Input should ").removeprefix("be ").partition(", unable")[0]
        for text in same
    ]
    return path, f"must be {' or '.join(texts)}, not {first['input']!r}".replace("be have", "have")


def _keys(location: Sequence[object]) -> list[str]:
    return [str(part) for part in location if part not in _NOT_KEYS]


class _Loader(yaml.CSafeLoader):
    """Refuses a key given twice in one mapping, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} again", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else repr(key))
        return super().construct_mapping(node, deep)
