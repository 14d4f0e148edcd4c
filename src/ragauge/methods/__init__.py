"""Inference methods: one file a method, named as the file; a variant is a method with other options."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ragauge import registry
from ragauge.errors import UserError, unknown
from ragauge.lm.engine import Limits
from ragauge.methods._base import Answer, Method

__all__ = ["Answer", "Limits", "Method", "make", "names"]


def names() -> list[str]:
    """All methods."""
    return registry.names("method")


def make(name: str, where: str = "", **options: Any) -> Method:
    """The method with these options; raises UserError on an unknown name or option and on a value out of range."""
    kind = registry.component("method", name, Method, where)
    known = [f.name for f in fields(kind)]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known, where)
    try:
        method: Method = TypeAdapter(kind).validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(filter(None, [where or name, *map(str, first["loc"])]))
        raise UserError(f"{place}: {first['msg']}; got {first['input']!r}") from None
    return method
