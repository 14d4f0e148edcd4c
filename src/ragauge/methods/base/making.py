"""Methods made from their names and options; a variant is a method with other options."""

from dataclasses import asdict
from typing import Any

from ragauge import options as declared
from ragauge import registry
from ragauge.methods.base.method import Method


def make(name: str, where: str = "", **options: Any) -> Method:
    """Make a method with these options.

    Raises:
        UserError: unknown name or option, a value out of range, options that exclude each other.
    """
    method = declared.make("method", name, Method, where, options).checked(where or name)
    vars(method)["stated_options"] = options
    return method


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
