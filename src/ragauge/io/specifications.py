"""Specifications in the metadata of records (`.meta.json`): every option that made the records,
defaults resolved.
"""

import hashlib

from pydantic import BaseModel

from ragauge.io.jsonl import JsonObject


class _Section(BaseModel, extra="forbid", frozen=True):
    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that differ where any key differs."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


class ServedFacts(_Section):
    """The requests to a served model, as far as its answers depend on them."""

    tokenizer: str | None = None  # whose tokens prompts are counted in; null: words, roughly
    body: JsonObject = {}  # further keys of every request
    own_cache: bool = False  # whether a line of the variant stands in front of its prompts


class EngineFacts(_Section):
    """The engine of a model, as far as answers depend on it."""

    name: str = "torch"  # registered name of the engine
    dtype: str | None = None  # null: not recorded
    device: str | None = None  # null: not recorded
    max_context: int | None = None  # in place of the one that the model was trained on
    weights: str = "full"  # how matrices are stored; full: in the dtype
    kv: str = "full"  # how keys and values are stored; full: in the dtype
    served: ServedFacts | None = None  # of a model behind a server; null: it ran here


class FinderFacts(_Section):
    """The model that finds evidence, where it is not the one that answers."""

    model: str
    model_sha256: str | None = None
    max_context: int | None = None
    template: str | None = None  # how requests to it are wrapped; null: as the prompts are
    template_arguments: JsonObject = {}  # of its tokenizer's chat template
    template_date: str | None = None  # that its chat template writes, if it writes one


class AnswerSpecification(_Section):
    """Everything that the records of one method variant depend on besides their questions."""

    method: str  # registered name of the method
    options: JsonObject  # every option of the method, defaults included
    dataset: str  # registered name of the data set
    dataset_options: JsonObject = {}  # every option of the data set, its seed included
    assets: dict[str, str] = {}  # hash of each encoder and the like that the method reads, by name
    data_sha256: str | None = None  # hash of the file of questions
    # harmonic mean of the lengths in tokens of all its documents, where positions follow from it
    corpus_spacing: float | None = None
    model: str  # source of the model
    model_sha256: str | None = None  # hash of the weights
    finder: FinderFacts | None = None  # null: the model that answers finds the evidence too
    template: str = ""  # the prompt's template
    template_arguments: JsonObject = {}  # of the tokenizer's chat template
    template_date: str | None = None  # that the chat template writes, if it writes one
    tokenization: str = "segments"  # of prompts: whole, as one text, or segments, each by itself
    instruction: str = ""  # the data set's preamble
    engine: EngineFacts = EngineFacts()
    max_new_tokens: int | None = None  # tokens after which an answer ends


class IndexFacts(_Section):
    label: str
    type: str  # registered name of the index type
    settings: JsonObject  # every key of its recipe, defaults included
    vectors: int | None = None  # vectors that it holds; null: not known before it is made
    nprobe: int | None = None  # nprobe of a search that states none
    filled: int | None = None  # vectors in all where some were drawn; null: all are of chunks
