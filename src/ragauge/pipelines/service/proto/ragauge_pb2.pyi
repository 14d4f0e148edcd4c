from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[Query]
    def __init__(self, queries: _Optional[_Iterable[_Union[Query, _Mapping]]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("tokens", "text", "k", "nprobe", "budget_s", "continuation")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    NPROBE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    tokens: Tokens
    text: str
    k: int
    nprobe: int
    budget_s: float
    continuation: int
    def __init__(self, tokens: _Optional[_Union[Tokens, _Mapping]] = ..., text: _Optional[str] = ..., k: _Optional[int] = ..., nprobe: _Optional[int] = ..., budget_s: _Optional[float] = ..., continuation: _Optional[int] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SearchReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Neighbours]
    def __init__(self, results: _Optional[_Iterable[_Union[Neighbours, _Mapping]]] = ...) -> None: ...

class Neighbours(_message.Message):
    __slots__ = ("neighbours", "nprobe", "seconds")
    class SecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    NPROBE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    neighbours: _containers.RepeatedCompositeFieldContainer[Neighbour]
    nprobe: int
    seconds: _containers.ScalarMap[str, float]
    def __init__(self, neighbours: _Optional[_Iterable[_Union[Neighbour, _Mapping]]] = ..., nprobe: _Optional[int] = ..., seconds: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Neighbour(_message.Message):
    __slots__ = ("id", "distance", "document", "tokens", "continuation")
    ID_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    id: int
    distance: float
    document: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    continuation: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., distance: _Optional[float] = ..., document: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., continuation: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[Tokens]
    def __init__(self, sequences: _Optional[_Iterable[_Union[Tokens, _Mapping]]] = ...) -> None: ...

class DetokenizeReply(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("index", "tokenizer", "encoder", "metric", "vectors", "max_nprobe", "vocabulary", "chunk_tokens")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    MAX_NPROBE_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    index: str
    tokenizer: str
    encoder: str
    metric: str
    vectors: int
    max_nprobe: int
    vocabulary: int
    chunk_tokens: int
    def __init__(self, index: _Optional[str] = ..., tokenizer: _Optional[str] = ..., encoder: _Optional[str] = ..., metric: _Optional[str] = ..., vectors: _Optional[int] = ..., max_nprobe: _Optional[int] = ..., vocabulary: _Optional[int] = ..., chunk_tokens: _Optional[int] = ...) -> None: ...
