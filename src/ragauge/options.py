"""Components made from a name and options, which the fields of their class declare."""

from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from ragauge import registry
from ragauge.errors import UserError, unknown

PositiveInt = Annotated[int, Field(ge=1)]
NaturalInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def make(kind: str, name: str, base: type, where: str, options: dict[str, Any]) -> Any:
    """Make a component whose fields are its options; no value is converted.

    Args:
        kind: of component, such as "method".
        base: the class that the component derives from.
        where: the place in a configuration, for messages.

    Raises:
        UserError: unknown name or option, a value of another type or out of range.
    """
    component = registry.component(kind, name, base, where)
    types = option_types(component)
    place = where or name
    for option, value in options.items():
        if option not in types:
            raise unknown(f"option of {name}", option, types, where)
        try:
            _checker(component, option).validate_python(value, strict=True)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise UserError(f"{place}.{option}: {message}; got {value!r}") from None
    return component(**options)


@cache
def option_types(component: type) -> dict[str, Any]:
    """Return the types of a component's options, by name."""
    hints = get_type_hints(component, include_extras=True)
    return {field.name: hints[field.name] for field in fields(component)}


@cache
def _checker(component: type, option: str) -> TypeAdapter[Any]:
    return TypeAdapter(option_types(component)[option])
