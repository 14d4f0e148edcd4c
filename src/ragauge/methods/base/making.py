"""Methods made from their names and options; a variant is a method with other options."""

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


def changed_options(method: Method) -> dict[str, Any]:
    """Return the options of a method that are not at their defaults."""
    defaults = asdict(make(method.name))
    return {key: value for key, value in asdict(method).items() if value != defaults[key]}


def modules(method: Method) -> list[str]:
    """Return the full names of the modules of a method, of the one that it wraps and of its
    compressor.
    """
    compressor = getattr(method, "compressor", None)
    wrapped = getattr(method, "wrapped", None)
    return [
        registry.module_name("method", method.name),
        *(modules(wrapped) if wrapped else ()),
        *([registry.module_name("compressor", compressor)] if compressor else ()),
    ]
