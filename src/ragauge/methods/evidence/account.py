"""How a fine-tuned decoder was trained to be asked for evidence, as its account next to its folder,
`<folder>.json`, says.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragauge.assets import store
from ragauge.assets.catalog import Template
from ragauge.errors import UserError, error_line
from ragauge.methods.evidence.request import Wording
from ragauge.methods.evidence.sentences import Splitter

FINE_TUNED = "fine-tuned from "  # begins the source in the manifest of a decoder that was trained


@dataclass(frozen=True)
class Asked:
    """How a decoder was trained to be asked; of one without a training nothing is said."""

    place: str = ""  # that says so: a file, or a section of a configuration
    template: str | None = None  # None: not known before the training
    # options of the methods that find evidence, with the values that the training had
    options: Mapping[str, Any] = field(default_factory=dict)


class _Settings(BaseModel):
    request: Wording | None = None
    sentences: Splitter | None = None


class _Account(BaseModel):
    template: Template | None = None
    settings: _Settings = _Settings()


def asked_by_account(source: str) -> Asked:
    """Read how a model was trained to be asked; `source` is a path, or anything else, which has no
    account.

    Raises:
        UserError: a fine-tuned decoder without an account that can be read.
    """
    folder = Path(os.path.expanduser(source.removeprefix("path:"))).absolute()
    if not os.path.isdir(folder):  # of a name that no file can have, too
        return Asked()
    path = folder.parent / f"{folder.name}.json"
    try:
        account = _Account.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        made_from = (store.manifest(folder) or {}).get("source")
        if not str(made_from).startswith(FINE_TUNED):
            return Asked()
        problem = f"cannot be read ({error_line(error)}), and says how {source} was trained"
        raise UserError(f"{path}: {problem}; it belongs next to the folder") from None
    return Asked(str(path), account.template, account.settings.model_dump(exclude_none=True))
