"""What is timed: the sections `latency`, `load` and `stream` of a configuration."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from ragauge.errors import SettingError, UserError

TRIALS, WARMUP = 30, 2  # as Superposition Prompting, appendix C, has it: the median of 30


class LatencySettings(BaseModel, extra="forbid", strict=True, frozen=True):
    """The latency protocol: methods interleaved, alone on the machine, medians over trials."""

    methods: list[str] = Field(min_length=1, description="names of the variants that are timed")
    dataset: str = Field(description="label of the data set whose token counts the prompts have")
    models: list[str] | None = Field(
        None,
        min_length=1,
        description=(
            "labels of the models that are timed; default: those that are asked this data set, but for models with a "
            "finder or trained here, which take as long as what they were made from where the answers are as long"
        ),
    )
    trials: int = Field(TRIALS, ge=1, description="timed trials per variant")
    warmup: int = Field(WARMUP, ge=0, description="untimed trials per variant before them")
    new_tokens: int = Field(5, ge=1, description="tokens generated in a trial")
    more_new_tokens: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="further response lengths to time; tables show new_tokens"
    )
    tokens: str | None = Field(
        None,
        description=(
            "random tokens in place of questions, as the papers' CUDA protocol has them: a name of token counts or a "
            "file; default: the data set's questions"
        ),
    )
    threads: int | None = Field(None, ge=1, description="threads of the decoder; default: all cores")
    documents: Literal["ready", "cold"] = Field(
        "ready",
        description=(
            "ready: documents are in memory when the question arrives; cold: computing them, writing them to disk and "
            "reading them back is timed as well (docs/document-store.md)"
        ),
    )
    allow_load: bool = Field(
        False,
        description=(
            "report times although other processes kept the machine busy; tables say so, and such times measure nothing"
        ),
    )

    @field_validator("tokens")
    @classmethod
    def _are_counts(cls, tokens: str | None) -> str | None:
        from ragauge.cost.tokens import load

        try:
            if tokens:
                load(tokens)
        except UserError as error:
            raise ValueError(str(error).removeprefix("--tokens: ")) from None
        return tokens

    @property
    def all_new_tokens(self) -> list[int]:
        """The numbers of tokens of a response, the tables' first."""
        return [self.new_tokens, *self.more_new_tokens]


class LoadSettings(BaseModel, extra="forbid", strict=True, frozen=True):
    """The load protocol: requests arrive by a clock of their own; percentiles of what their users wait for."""

    methods: list[str] = Field(min_length=1, description="names of the variants that are measured")
    dataset: str = Field(description="label of the data set whose questions are asked")
    rates: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        [], description="rates of Poisson arrivals, questions a second"
    )
    clients: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="numbers of clients, each of which asks its next question when the last one is answered"
    )
    requests: int = Field(50, ge=1, description="requests at each rate and number of clients")
    warmup: int = Field(5, ge=0, description="warm-up requests before them, which are not counted")
    new_tokens: int = Field(20, ge=1, description="tokens of each response")
    prompts: int = Field(3, ge=1, description="different questions, asked in turn")
    documents: Literal["ready", "computed"] = Field(
        "ready",
        description=(
            "ready: the documents' prepared state is in memory when the question arrives; computed: it is computed "
            "within each request"
        ),
    )
    target_first_token_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="maximum time to first token of a request that counts as goodput, seconds",
    )
    target_per_token_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="maximum time per further token of a request that counts as goodput, seconds",
    )
    batch: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        1,
        description=(
            "requests answered together, each admitted to the decoder's next pass; auto: as many as memory allows and "
            "the processor gains from"
        ),
    )
    threads: int | None = Field(None, ge=1, description="threads of the decoder; default: all cores")

    @property
    def all_requests(self) -> int:
        """Requests to one model, those of the warm-up included."""
        return len(self.methods) * (len(self.rates) + len(self.clients)) * (self.warmup + self.requests)

    @model_validator(mode="after")
    def _has_levels(self) -> Self:
        if not self.rates and not self.clients:
            raise SettingError("rates", "neither rates nor clients are given; for example rates 0.5,1 or clients 1,4")
        return self


class StreamSettings(BaseModel, extra="forbid", strict=True, frozen=True):
    """A stream of questions whose documents come back, and a store that keeps what was prepared of them."""

    methods: list[str] = Field(min_length=1, description="names of the variants that are measured")
    dataset: str = Field(description="label of the data set whose questions and documents are taken")
    questions: int = Field(10, ge=1, description="different questions; the corpus is all of their documents")
    documents: int = Field(5, ge=1, description="documents of each request, drawn from the corpus")
    requests: int = Field(50, ge=1, description="requests, one after another")
    exponent: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="exponent of Zipf's law: the r-th most popular document is drawn with weight r ** -exponent",
    )
    store: Literal["disk", "memory"] = Field("disk", description="where the store keeps what was prepared")
    store_gb: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="size of the store; the least recently used documents leave it"
    )
    new_tokens: int = Field(5, ge=1, description="tokens of each response")
    threads: int | None = Field(None, ge=1, description="threads of the decoder; default: all cores")
