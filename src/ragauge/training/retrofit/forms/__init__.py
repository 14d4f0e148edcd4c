"""The weights that RETRO-fit trains for a form of reading neighbours: one file per trainable form."""

from __future__ import annotations

from typing import cast

from ragauge import registry
from ragauge.training.retrofit.forms._base import Trainable


def trainable(form: str) -> Trainable:
    """The training of this form. Raises UserError with the choices if there is none."""
    return cast(Trainable, registry.module("trainable form", form))


__all__ = ["Trainable", "trainable"]
