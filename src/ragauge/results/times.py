"""Files of times: what `ragauge time`, `load` and `stream` write and items read, one model each.

A key that does not apply to a measurement is not set, and is left out of the file (`to_json`).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from ragauge.errors import validating
from ragauge.io.jsonl import JsonObject, read_object
from ragauge.methods.base.method import State
from ragauge.methods.base.states import effective_state

SERVER = "server"  # the device of times of a served model
UNKNOWN: Literal["?"] = "?"
Number: TypeAlias = float | None  # None: not known
STATE_WORDS: dict[str, str] = {
    "nothing": "nothing read",
    "documents": "each document read",
    "set": "exactly this list read",
}


class TimesModel(BaseModel):
    """A part of a file of times; all of its numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def to_json(self) -> JsonObject:
        """Return the keys that are set."""
        return self.model_dump(exclude_unset=True)


# --- parts ---


class TraceFacts(TimesModel):
    """A trace whose requests were replayed."""

    requests: int
    seconds: float
    text: str  # whose words the prompts are made of


class ProtocolFacts(TimesModel, extra="allow"):
    """How times were measured: the settings of their section, model and machine, as readers use
    them.
    """

    dataset: str = ""
    device: str = "cpu"
    dtype: str = ""
    weights: str = "full"
    kv: str = "full"
    trials: int | str = UNKNOWN
    new_tokens: int | str = UNKNOWN
    answer_tokens: int | str | None = None  # the response length that stands next to quality
    tokens: JsonObject | None = None  # of the first prompt's segments
    documents: int | str = (
        UNKNOWN  # of a stream: how many a request has; of an older load: their state
    )
    state: State | None = None  # of load: what was read before the question
    corpus_documents: int | str = UNKNOWN
    growth: float = 0.0  # documents that enter the corpus with a request
    store: str = ""
    store_gb: float | Literal[""] = ""
    exponent: float | Literal[""] = ""
    cache: str = ""  # of a server
    target_first_token_s: Number = None
    target_per_token_s: Number = None
    attainment: float = 0.95  # share of answers within the targets at which a load meets them
    find: bool = False  # whether loads were searched
    trace: TraceFacts | None = None

    @property
    def limits(self) -> str:
        """The targets of an answer in words; empty without any."""
        targets = {
            "first token": self.target_first_token_s,
            "each further token": self.target_per_token_s,
        }
        return ", ".join(f"{token} within {limit:g} s" for token, limit in targets.items() if limit)

    @property
    def is_served(self) -> bool:
        return self.device == SERVER


class RequestTimes(TimesModel):
    """A request and its seconds, counted from the first arrival (`_at_s`) or from its own."""

    request: int = 0
    prompt: int = 0
    warmup: bool = False
    arrival_at_s: float = 0.0
    start_at_s: float = 0.0
    first_token_at_s: Number = None
    end_at_s: float = 0.0
    new_tokens: int | None = 0  # None: a server that counts none
    queued_s: float = 0.0
    first_token_s: Number = None
    per_token_s: Number = None
    total_s: Number = None  # None: also of a response shorter than requested
    failure: str | None = None  # why there is no answer, and so no times
    # share of the documents' tokens found stored, of a server the prompt's, and those tokens
    found: Number = None
    found_of: int = 1
    prompt_tokens: int | None = None  # by the server's count
    cached_tokens: int | None = None  # of the prompt, in the server's cache
    model: str | None = None  # what the server calls its model
    server: dict[str, float] | None = None  # times by the server's clock
    remarks: list[str] = []  # on the response: its length, how its tokens were counted


def remarks(rows: Sequence[RequestTimes]) -> list[str]:
    """Return each remark with the number of responses that it is about."""
    answered = [row for row in rows if not row.warmup and not row.failure]
    counts = Counter(remark for row in answered for remark in row.remarks)
    return [f"{n} of {len(answered)} responses: {remark}" for remark, n in counts.items()]


def share_found(rows: Sequence[RequestTimes]) -> Number:
    """Return the share of all tokens that was found; None where no row has one."""
    known = [row for row in rows if row.found is not None]
    weights = [row.found_of for row in known]
    return fmean([row.found or 0.0 for row in known], weights) if known else None


class TrialFacts(TimesModel):
    """A trial, and the load of other processes during it."""

    variant: str
    trial: int = 0
    load_share: float = 0.0
    disturbed: bool = False


class Trial(TrialFacts, RequestTimes):
    """A timed answer of the latency protocol."""

    state: State | None = (
        None  # what was read before the question; None: a server's cache, as found
    )
    preparation_s: Number = None  # of reading it, and the bytes of keys and values that stay
    preparation_bytes: int | None = None
    stages: dict[str, float] = {}  # seconds by stage that a user waits for
    flop: Number = None
    compute_cycles: Number = None
    roofline_s: Number = None


class DocumentTrial(TrialFacts):
    """One preparation of a variant's documents: computed, computed and stored, and loaded."""

    prompt: int = 0
    computing_s: float
    missed_s: float
    loading_s: float
    bytes: int = 0


class DocumentTrials(TimesModel):
    state: str = ""
    rows: list[DocumentTrial] = []


class EvidenceTrial(TrialFacts):
    """The part of one question in the seconds in which evidence was found for several at a time."""

    evidence_s: float


class EvidenceTrials(TimesModel):
    questions: int
    rows: list[EvidenceTrial] = []


class Spread(TimesModel):
    median: Number = None
    q1: Number = None
    q3: Number = None
    n: int = 0


class Percentile(TimesModel):
    """A percentile of seconds with its 95% interval."""

    value: float
    low: float
    high: float


class Percentiles(TimesModel):
    p50: Percentile
    p95: Percentile
    p99: Percentile


class RequestSummary(TimesModel):
    """Percentiles and rates of the requests after the warm-up; empty where times were refused."""

    first_token_s: Percentiles | None = None
    per_token_s: Percentiles | None = None
    total_s: Percentiles | None = None
    queued_s: Percentiles | None = None
    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    questions_per_s: float = 0.0
    tokens_per_s: Number = 0.0
    goodput_per_s: float = 0.0
    good_share: float = 0.0
    in_service: float = 0.0
    # of a rate or a number of clients: while requests arrive, or each client has one under way
    steady: "RequestSummary | None" = None


class GpuState(TimesModel):
    """The state of a GPU between trials."""

    looks: int
    other_processes: int
    slowed: dict[str, int]


class ServerView(TimesModel):
    """A server's own view of the requests: its cache and its clock."""

    cached_share: Number = None
    first_token_s: Number = None
    per_token_s: Number = None


class Watched(TimesModel):
    """Other work while times were taken, and why they must not be reported."""

    load_share: float = 0.0
    gpu: GpuState | None = None
    busy: str | None = None  # what disturbed them
    refused: str | None = None
    server: ServerView | None = None
    client_late_p99_s: Number = None


class TrialLoad(TimesModel):
    """CPU time that other processes took during the trials of the latency protocol."""

    share: float = 0.0
    others_cpu_s: float = 0.0
    seconds: float = 0.0
    disturbed: int = 0
    retried: int = 0
    allowed_share: float = 0.0
    gpu: GpuState | None = None
    busy: str | None = None


class LoadLevel(Watched):
    """One level of load on one variant: exactly one of rate, clients and speed is set."""

    variant: str
    batch: int | None = None
    rate: Number = None
    clients: int | None = None
    speed: Number = None
    remarks: list[str] = []  # on the level: why it ended early, or was not steady
    summary: RequestSummary = RequestSummary()
    requests: list[RequestTimes] = []

    @property
    def load(self) -> float:
        """The one of rate, clients and speed that is set."""
        return self.rate or self.clients or self.speed or 0.0


class Stream(Watched):
    """A variant's stream of requests."""

    variant: str
    hit_rate: Number = None
    probes: int = 2
    missed_s: Number = None  # first token with no document in the store, and with all
    found_s: Number = None
    stored_bytes: int | None = None  # after the last request
    failed: int = 0
    summary: RequestSummary = RequestSummary()
    requests: list[RequestTimes] = []


class SpeedupGap(TimesModel):
    """Why a measured speedup is not the theoretical one (docs/protocols.md)."""

    theoretical_speedup: float
    roofline_speedup: float
    measured_speedup: float
    gap_s: float
    stages: dict[str, dict[str, float]]
    between_calls_s: float


class StateTimes(TimesModel):
    """The variants in one state of what was read before the question.

    Attributes:
        stages: of each variant, the calls of its first prompt by stage.
        gap: why each variant's measured speedup is not the theoretical one.
        summary: the spread of each variant's times.
    """

    stages: dict[str, dict[str, dict[str, float]]] = {}
    gap: dict[str, SpeedupGap] = {}
    summary: dict[str, dict[str, Spread]] = {}


# --- files ---


class TimesFile(TimesModel):
    """The keys of every file of times; `model` and `dataset` are the labels of its path."""

    model: str = ""
    dataset: str = ""
    provenance: JsonObject = {}
    protocol: ProtocolFacts = ProtocolFacts()
    unsupported: dict[str, str] = {}  # variant -> why the engine does not run it

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            UserError: no JSON, or a key has no valid value.
        """
        content = read_object(path)
        with validating(str(path)):
            times = cls.model_validate(content, strict=True)
        return times.model_copy(update={"model": path.stem, "dataset": path.parent.name})


AnyTrial = TypeVar("AnyTrial", bound=TrialFacts)


class LatencyTimes(TimesFile, Watched):
    """The latency protocol with one response length, and with further ones (`other_lengths`)."""

    machine: JsonObject = {}
    load: TrialLoad = TrialLoad()
    # the state from which each variant gains; of a server whose cache is as it was found: none
    usable: dict[str, State] = {}
    states: dict[State, StateTimes] = {}  # the default of tables first
    rows: list[Trial] = []
    documents: DocumentTrials | None = None
    evidence_batches: EvidenceTrials | None = None
    other_lengths: list["LatencyTimes"] = []

    @property
    def default_state(self) -> State:
        """The state that tables show first."""
        return next(iter(self.states), "documents")

    def measured_state(self, name: str, state: State | None = None) -> State | None:
        """Return the state of a variant's trials in a state, by default the first: the one from
        which it gains, or `nothing` below it; None: not known.
        """
        usable = self.usable.get(name)
        return usable and effective_state(usable, state or self.default_state)

    @property
    def at_answer_length(self) -> "LatencyTimes":
        """The times of the response length that stands next to the answers' quality."""
        lengths = {times.protocol.new_tokens: times for times in self.other_lengths}
        chosen = lengths.get(self.protocol.answer_tokens or UNKNOWN, self)
        return chosen.model_copy(update={"model": self.model, "dataset": self.dataset})

    @property
    def device(self) -> str:
        """The kind of device, without its number."""
        return self.protocol.device.partition(":")[0]

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(row.variant for row in self.rows))

    def trials(self, name: str, state: State | None = None) -> list[Trial]:
        """Return a variant's trials in a state, by default the first: undisturbed ones, or all where
        the machine was always busy.
        """
        measured = self.measured_state(name, state)
        return self._counted([row for row in self.rows if row.state == measured], name)

    def document_trials(self, name: str) -> list[DocumentTrial]:
        return self._counted(self.documents.rows if self.documents else (), name)

    def evidence_trials(self, name: str) -> list[EvidenceTrial]:
        return self._counted(self.evidence_batches.rows if self.evidence_batches else (), name)

    def seconds(self, name: str, key: str = "total_s", state: State | None = None) -> list[float]:
        """Return the times of the trials of a variant that count, in a state."""
        values = (getattr(trial, key) for trial in self.trials(name, state))
        return [seconds for seconds in values if seconds is not None]

    def _counted(self, rows: Sequence[AnyTrial], name: str) -> list[AnyTrial]:
        counts_all = bool(self.load.busy)
        return [row for row in rows if row.variant == name and (counts_all or not row.disturbed)]


class LoadTimes(TimesFile):
    levels: list[LoadLevel] = []


class StreamTimes(TimesFile):
    streams: list[Stream] = []
