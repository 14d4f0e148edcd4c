"""How a fine-tuned decoder was trained to be asked for evidence, as its account next to its folder,
`<folder>.json`, says.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from ragauge.assets import store
from ragauge.assets.catalog import Template
from ragauge.errors import UserError, error_line
from ragauge.methods.evidence.request import Wording
from ragauge.methods.evidence.sentences import Splitter
from ragauge.methods.prompts.templates import TEMPLATE_DATE, TEMPLATES

FINE_TUNED = "fine-tuned from "  # begins the source in the manifest of a decoder that was trained
CHOICES = {
    "request": get_args(Wording),
    "sentences": get_args(Splitter),
    "template": TEMPLATES,
}
WRAPPING = {"template_arguments": {}, "template_date": TEMPLATE_DATE}  # in every training


class TrainedDefaults(NamedTuple):
    """How a decoder was trained to be asked; of one without a training nothing is said."""

    place: str = ""  # that says so: a file, or a section of a configuration
    # of the methods that find evidence
    options: Mapping[str, Any] = {}
    # keys of a model that say how prompts are wrapped; the template is not known before a training
    wrapping: Mapping[str, Any] = {}

    def check(self, stated: Mapping[str, Any], where: str) -> None:
        """Raise UserError if a stated value, at the place `where`, is another than the training's;
        None is not stated.
        """
        for key, trained in {**self.options, **self.wrapping}.items():
            value = stated.get(key)
            if None not in (value, trained) and value != trained:
                raise UserError(
                    f"{where}: {key}: {value!r}, but {self.place} says that the model was trained "
                    f"with {trained!r}; leave it out, or train with it; known: "
                    + ", ".join(CHOICES.get(key, [str(trained)]))
                )


NO_TRAINING = TrainedDefaults()


class _Settings(BaseModel):
    request: Wording | None = None
    sentences: Splitter | None = None


class _Account(BaseModel):
    template: Template
    settings: _Settings


def read_account(source: str) -> TrainedDefaults:
    """Read how a model was trained to be asked; `source` is a path, or anything else, which has no
    account.

    Raises:
        UserError: a fine-tuned decoder without an account that can be read.
    """
    folder = Path(os.path.expanduser(source.removeprefix("path:")))
    path = folder.parent / f"{folder.name}.json"
    try:
        os.stat(f"{folder}/.")  # a file of a model's name says nothing of the model
        account = _Account.model_validate_json(path.read_bytes()).model_dump(exclude_none=True)
    except (OSError, ValueError) as error:
        if FINE_TUNED not in str(store.manifest(folder)):
            return NO_TRAINING
        raise UserError(
            f"{path}: cannot be read ({error_line(error)}); it belongs next to the folder, and says "
            f"how {source} was trained"
        ) from None
    return TrainedDefaults(str(path), account.pop("settings"), WRAPPING | account)
