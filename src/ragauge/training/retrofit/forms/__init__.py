"""What RETRO-fit trains of a form of reading neighbours, and its options: one file per trainable form."""

from __future__ import annotations

from typing import Any, cast

from ragauge import registry
from ragauge.training.retrofit.forms._base import Trainable


def names() -> list[str]:
    """All trainable forms."""
    return registry.names("trainable form")


def kind(form: str) -> type[Trainable]:
    """The class of this form's training. Raises UserError with the choices if there is none."""
    return cast(type[Trainable], registry.component("trainable form", form, Trainable))


def options() -> dict[str, Any]:
    """The options of all forms, as fields of a model of settings."""
    return {key: (field.annotation, field) for name in names() for key, field in kind(name).model_fields.items()}


__all__ = ["Trainable", "kind", "names", "options"]
