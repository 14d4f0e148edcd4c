"""Methods made from their names and options; a variant is a method with other options."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ragauge import registry
from ragauge.errors import UserError, unknown
from ragauge.methods.base.method import Method


def make(name: str, where: str = "", **options: Any) -> Method:
    """The method with these options; raises UserError on an unknown name or option and on a value
    out of range.
    """
    kind = registry.component("method", name, Method, where)
    types = _types(kind)
    for option, value in options.items():
        if option not in types:
            raise unknown(f"option of {name}", option, types, where)
        try:  # nothing is converted
            _checker(kind, option).validate_python(value, strict=True)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise UserError(f"{where or name}.{option}: {message}; got {value!r}") from None
    return kind(**options).checked(where or name)


@cache
def _types(kind: type[Method]) -> dict[str, Any]:
    """The types of a method's options."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _checker(kind: type[Method], option: str) -> TypeAdapter[Any]:
    return TypeAdapter(_types(kind)[option])


def options(name: str, where: str = "", **given: Any) -> dict[str, Any]:
    """All options of a method: those given, checked as by `make`, and the defaults of the others."""
    return asdict(make(name, where, **given))


def modules(name: str, options: Mapping[str, Any]) -> list[str]:
    """The full names of a method's module and of the method and compressor that its options name
    (all are given).
    """
    inner = options.get("inner")
    compressor = options.get("compressor")
    wrapped = modules(str(inner), options.get("inner_options") or {}) if inner else []
    compressing = [registry.module_name("compressor", compressor)] if compressor else []
    return [registry.module_name("method", name), *wrapped, *compressing]
