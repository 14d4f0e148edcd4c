"""Settings of the timing protocols: the sections `latency`, `load` and `stream`."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ragauge.cost.tokens import load
from ragauge.errors import SettingError
from ragauge.io.sections import Recorded, Section
from ragauge.methods.base.method import State

TRIALS = 30
WARMUP = 2  # as Superposition Prompting, appendix C, has it: the median of 30
MeasuredModels = Annotated[
    list[str] | None,
    Recorded.NEVER,  # each of them has a file of its own
    Field(
        min_length=1,
        description="labels of the models measured, served ones too; default: those timed by latency",
    ),
]
PositiveCount = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SEARCH_LEVELS = 14  # of a search, about, of clients and of rates together
ARRIVALS = ("rates", "clients", "find", "speeds")  # keys that say how requests arrive
ALONE = {  # those of them that exclude the others before them, with the reason
    "find": "a search chooses its rates and numbers of clients",
    "speeds": "a trace has arrivals of its own",
}


class TimedSettings(Section):
    """The settings that the three protocols share."""

    methods: list[str] = Field(min_length=1, description="names of the variants that are measured")
    dataset: str = Field(description="label of the data set that supplies questions and documents")
    allow_load: bool = Field(
        True,
        description="show times of a machine that other processes kept busy, with their CPU share next to them; "
        "false, for times that are published: refuse them",
    )
    server_cache: Literal["cold", "warm", "found"] = Field(
        "cold", description="the cache of a served model: docs/served-models.md"
    )
    threads: int | None = Field(
        None, ge=1, description="threads of the decoder; default: all cores"
    )


class LatencySettings(TimedSettings):
    """The latency protocol: methods interleaved, alone on the machine, medians over trials."""

    models: Annotated[list[str] | None, Recorded.NEVER] = Field(
        None,
        min_length=1,
        description="labels of the models that are timed; default: those that answer this data set, without models "
        "trained here, which take as long as those they come from, or whose finder a method needs",
    )
    trials: int = Field(TRIALS, ge=1, description="timed trials per variant")
    warmup: int = Field(WARMUP, ge=1, description="untimed trials per variant before them")
    prompts: int = Field(3, ge=1, description="prompts that share the trials")
    new_tokens: int = Field(5, ge=1, description="tokens generated in a trial")
    more_new_tokens: list[PositiveCount] = Field([], description="further response lengths to time")
    answer_tokens: PositiveCount | Literal["median"] | None = Field(
        "median",
        description="response length that stands next to the answers' quality, timed as well: a number, or the median "
        "of the answers recorded; null: new_tokens alone",
    )
    tokens: str | None = Field(
        None, description="counts of random tokens, a name or a file; default: questions"
    )
    states: list[Literal["nothing", "documents", "set", "disk"]] = Field(
        ["documents", "set"],
        min_length=1,
        description="what was read before the question, the first state is the tables' default: documents (each by "
        "itself), set (this list in this order), nothing; disk: also time computing documents, writing them to disk "
        "and reading them back (docs/protocols.md)",
    )
    evidence_batch: int | None = Field(
        None,
        ge=2,
        description="also time methods that look for evidence on so many questions side by side, each with its part of "
        "the time (8 in CFIC's Table 8); default: on one at a time alone",
    )

    @field_validator("tokens")
    @classmethod
    def _are_counts(cls, tokens: str | None) -> str | None:
        if tokens:
            load(tokens, where="")
        return tokens

    @model_validator(mode="after")
    def _has_state(self) -> Self:
        if not self.timed_states:
            raise SettingError("states", "must have one besides disk, got disk alone")
        return self

    @property
    def timed_states(self) -> list[State]:
        return [state for state in self.states if state != "disk"]

    @property
    def requests_of_model(self) -> int:
        """Timed trials of one model in a state."""
        return self.trials * len(self.methods)

    @property
    def all_new_tokens(self) -> list[int]:
        """The numbers of tokens of a response, the tables' first."""
        answers = [self.answer_tokens] if isinstance(self.answer_tokens, int) else []
        return list(dict.fromkeys([self.new_tokens, *self.more_new_tokens, *answers]))


class LoadSettings(TimedSettings):
    """The load protocol: requests arrive by a clock of their own; percentiles of what their users
    wait for.
    """

    models: MeasuredModels = None
    rates: list[Positive] = Field([], description="rates of Poisson arrivals, questions a second")
    clients: list[PositiveCount] = Field(
        [], description="numbers of clients, which ask again when they were answered"
    )
    speeds: list[Positive] = Field(
        [], description="speeds of a data set that is a trace: 2, in half of its time"
    )
    find: bool = Field(
        False,
        description="search the highest number of clients and the highest rate at which the answers meet the targets",
    )
    attainment: float = Field(
        0.95, gt=0, lt=1, description="share of the answers that meet the targets in a search"
    )
    requests: int = Field(
        50, ge=1, description="requests at each rate, number of clients and speed"
    )
    duration_s: Positive | None = Field(
        None, description="seconds for which requests are sent; default: `requests`, however long"
    )
    warmup: Annotated[int, Field(ge=0)] | Literal["steady"] = Field(
        5,
        description="warm-up requests before them, which are not counted; steady: the first of them, until the time "
        "of an answer is steady",
    )
    ramp_s: Seconds = Field(
        0.0, description="seconds in which the load rises to each rate or number of clients"
    )
    turns: int = Field(1, ge=1, description="questions of a conversation, one after another")
    thinking_s: Seconds = Field(
        0.0, description="seconds between an answer and the next question of its client"
    )
    new_tokens: int = Field(20, ge=1, description="tokens of each response, unless a trace says")
    prompts: int = Field(
        3,
        ge=1,
        description="different questions, or conversations of `turns` questions, sent in turn; a trace has its own",
    )
    state: State = Field(
        "documents",
        description="what was read before the question, as in the latency protocol: nothing, documents (each by "
        "itself), set (this list in this order); of a server: server_cache",
    )
    store_gb: Positive = Field(
        1.0, description="size of the store in memory while a trace is replayed here"
    )
    target_first_token_s: Positive | None = Field(
        None, description="maximum time to first token of goodput, seconds"
    )
    target_per_token_s: Positive | None = Field(
        None, description="maximum time per further token of goodput, seconds"
    )
    batch: PositiveCount | Literal["auto"] = Field(
        1, description="requests answered together; auto: as many as are worth it"
    )

    @property
    def requests_of_model(self) -> int:
        """Requests to one model, those of the warm-up included; of a search or a duration, as if
        each of its levels had `requests`.
        """
        levels = len(self.rates) + len(self.clients) + len(self.speeds)
        levels += SEARCH_LEVELS * self.find
        return len(self.methods) * levels * self.requests_of_level

    @property
    def requests_of_level(self) -> int:
        """Requests of a level without a duration, those of a counted warm-up included."""
        return self.requests + (0 if self.warmup == "steady" else self.warmup)

    @property
    def targets(self) -> dict[str, float | None]:
        """Limits of a good answer by time, in seconds."""
        return {"first_token_s": self.target_first_token_s, "per_token_s": self.target_per_token_s}

    @model_validator(mode="after")
    def _has_levels(self) -> Self:
        chosen = [key for key in ARRIVALS if getattr(self, key)]
        if not chosen:
            raise SettingError(
                "rates",
                "neither rates nor clients are given, nor a trace's speeds, nor find"
                "; for example rates 0.5,1 or clients 1,4",
            )
        if self.speeds and self.turns > 1:
            chosen = ["turns", *chosen]
        *others, last = chosen
        if others and last in ALONE:
            raise SettingError(last, f"{ALONE[last]}; leave out {', '.join(others)}")
        if self.thinking_s and self.turns == 1 and not (self.clients or self.find):
            raise SettingError(
                "thinking_s", "pauses clients and conversations; state clients or turns"
            )
        if self.find and not self.target_first_token_s:
            raise SettingError("find", "needs a longest wait; state target_first_token_s")
        return self


class StreamSettings(TimedSettings):
    """A stream of questions whose documents come back, and a store that keeps what was prepared of
    them.
    """

    models: MeasuredModels = None
    questions: int = Field(
        10, ge=1, description="different questions; the corpus is all of their documents"
    )
    documents: int = Field(5, ge=1, description="documents of each request, drawn from the corpus")
    requests: int = Field(50, ge=1, description="requests, one after another")
    exponent: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="of Zipf's law, by which documents are drawn"
    )
    growth: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="documents that enter the corpus a request"
    )
    store: Literal["disk", "memory"] = Field(
        "disk", description="where the store keeps what was prepared"
    )
    store_gb: Positive = Field(
        1.0, description="size of the store; the least recently used documents leave it"
    )
    new_tokens: int = Field(5, ge=1, description="tokens of each response")

    @property
    def requests_of_model(self) -> int:
        return self.requests * len(self.methods)


TimedSection = LatencySettings | LoadSettings | StreamSettings
