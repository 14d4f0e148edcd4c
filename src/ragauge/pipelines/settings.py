"""One way of generating with retrieval: an entry of the section `pipelines` of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ragauge import registry
from ragauge.assets import resolver
from ragauge.cost.hardware import AUTO, ONNX_DTYPES
from ragauge.errors import SettingError, UserError
from ragauge.io.sections import NO_OPTION, Recorded, Section
from ragauge.pipelines.modes.base import Mode, mode_class, mode_classes, trainable_modes
from ragauge.pipelines.service.settings import check_address
from ragauge.pipelines.windows import CHUNK

if TYPE_CHECKING:
    from ragauge.pipelines.schedules.base import Schedule


_MODES = "; ".join(
    f"{name}: {mode.label}{', must be trained first' if mode.needs_training else ''}"
    for name, mode in mode_classes().items()
)
_ONNX_MODES = ", ".join(name for name, mode in mode_classes().items() if "onnx" in mode.engines)
# Labels, ways of access, and files whose hashes are recorded instead. Options of these names state
# a source or a file, so none is made from the key.
_Unrecorded = Annotated[str | None, Recorded.NEVER, NO_OPTION]


@contextmanager
def _about(key: str) -> Iterator[None]:
    """Raise a UserError in the block as one about this key."""
    try:
        yield
    except UserError as error:
        raise SettingError(key, str(error)) from None


class PipelineSettings(Section):
    """A schedule of retrieval over held-out text. The key is its label in file names and tables."""

    schedule: str = Field(
        description="when the database is queried, and what generation waits for; default: the key"
    )
    task: Literal["perplexity", "generate"] = Field(
        "perplexity", description="score text, or continue 64 tokens of it"
    )
    scoring: Literal["published", "after_first_query"] = Field(
        "published",
        description="published: every label of the first `limit` texts, cut at `tokens`; after_first_query: of "
        "sequences of `tokens`, what follows the first 64",
    )
    model: _Unrecorded = Field(
        None, description="label of the decoder; default: the first of the configuration"
    )
    database: _Unrecorded = Field(
        None, description="label of the database; default: the first of the configuration"
    )
    index: Annotated[str, Recorded.NEVER, NO_OPTION] = Field(
        "ivf", description="label of the database's index that is searched"
    )
    evaluation: Annotated[str | None, Recorded.NEVER] = Field(
        None, description="label of an evaluation set; default: the held-out text"
    )
    interval: int = Field(64, ge=1, le=64, description="tokens between retrievals; must divide 64")
    neighbours: int = Field(2, ge=1, description="neighbours per retrieval")
    nprobe: Annotated[int, Field(ge=1)] | Literal["hide"] | None = Field(
        None,
        description="inverted lists to scan, or HNSW's candidates (efSearch); hide (piperag): as many as "
        "decoding hides; default: the index's own",
    )
    first_nprobe: int | None = Field(
        None, ge=1, description="nprobe hide: of the first search; default: the index's"
    )
    exclude: Literal["none", "article"] = Field(
        "none", description="article: none from the text's own article"
    )
    mode: str = Field(
        "joint",
        description=f"how neighbours are read; {_MODES}",
        json_schema_extra={"enum": list(registry.names("mode"))},
    )
    engine: Annotated[Literal["torch", "onnx"], NO_OPTION] = Field(
        "torch", description=f"of the decoder; onnx ({_ONNX_MODES}) exports it first"
    )
    read_ahead: bool = Field(
        True, description="schedule piperag: the thread that searches reads neighbours as well"
    )
    encoding: Literal["once", "every_window"] = Field(
        "once",
        description="schedule retrieve_once: every_window encodes its neighbours anew in each window, as PipeRAG's "
        "released scoring",
    )
    retrofit_minutes: Annotated[float | None, Recorded.NEVER, NO_OPTION] = Field(
        None, gt=0, description="minutes of RETRO-fit training; default: untrained"
    )
    adapters: _Unrecorded = Field(
        None, description="weights of RETRO-fit, in safetensors, instead of retrofit_minutes"
    )
    tokens: int = Field(
        1024, ge=CHUNK + 2, description="tokens per sequence, or most tokens of a text"
    )
    limit: Annotated[int | None, Recorded.NEVER] = Field(
        None, ge=1, description="number of sequences; default: all held-out text"
    )
    trials: int = Field(
        1, ge=1, description="timed generations per sequence, after an untimed one if several"
    )
    interleaved: Annotated[bool, Recorded.WITH_TIMES, NO_OPTION] = Field(
        False,
        description="task generate: take turns, trial by trial, with the other interleaved pipelines that differ in "
        "their schedule and its options alone",
    )
    retrieval_cores: Annotated[str | None, Recorded.WITH_TIMES, NO_OPTION] = Field(
        None, description="cores of the retrieval server, such as 1-3; default: all"
    )
    server: Annotated[
        Annotated[list[str], Field(min_length=1)] | Literal["job"] | None,
        Recorded.WITH_TIMES,
        NO_OPTION,
    ] = Field(
        None,
        description="addresses of running servers, host:port, one for each part of the index; job: one job of the "
        "workflow serves all pipelines that say so; default: a server is started for the run",
    )
    server_threads: Annotated[int, Recorded.WITH_TIMES, NO_OPTION] = Field(
        1, ge=1, le=1024, description="threads of the server that is a job of its own"
    )
    tls_ca: _Unrecorded = Field(
        None, description="CA certificates of the servers', a PEM file; default: no TLS"
    )
    tls_name: _Unrecorded = Field(
        None, description="name on the servers' certificate; default: that of their address"
    )
    token_file: _Unrecorded = Field(
        None, description="file of the token that the servers require; default: none"
    )
    server_cert: _Unrecorded = Field(
        None, description="certificate chain, PEM, of a job's server for other machines"
    )
    server_key: _Unrecorded = Field(
        None, description="private key of that certificate, a PEM file; default: none"
    )
    cores: Annotated[str | None, Recorded.WITH_TIMES] = Field(
        None, description="processor cores of the decoder, such as 0 or 0-3; default: all"
    )
    threads: int | None = Field(
        None, ge=1, description="threads of the decoder; default: torch's own choice"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise SettingError at the first key whose value does not go with the others."""
        self.make_schedule()
        # nothing is decoded that could hide a search
        if self.hides_search and self.task == "perplexity":
            raise SettingError(
                "nprobe", "'hide' requires task 'generate'; to score text, give a fixed nprobe"
            )
        if self.interleaved and (self.task != "generate" or self.has_server_job):
            raise SettingError("interleaved", "requires task 'generate', and no server 'job'")
        self._check_mode()
        self._check_server()
        return self

    def _check_mode(self) -> None:
        mode = self.mode_class
        stated = self.model_dump(exclude_defaults=True)
        trained = [key for key in ("adapters", "retrofit_minutes") if key in stated]
        if len(trained) > 1:
            raise SettingError("adapters", "give these or retrofit_minutes, not both")
        if trained and not mode.trainable:
            names = " or ".join(map(repr, trainable_modes()))
            raise SettingError(trained[0], f"only valid with mode {names}, not {self.mode!r}")
        if mode.needs_training and not trained:
            raise SettingError(
                "mode", f"{self.mode!r} must be trained first; give retrofit_minutes or adapters"
            )
        if self.engine not in mode.engines:
            choices = ", ".join(mode.engines)
            raise SettingError(
                "engine", f"{self.engine!r} does not run mode {self.mode!r}; known: {choices}"
            )

    def _check_server(self) -> None:
        for address in self.addresses:
            with _about("server"):
                check_address(address)
        if self.server and not self.queries_index:
            raise SettingError("server", f"schedule {self.schedule!r} asks no index")
        changed = self.model_dump(exclude_defaults=True)
        needed_by = dict.fromkeys(("server_cert", "server_key", "server_threads"), "server: job")
        if self.has_server_job:
            needed_by = {}
        elif not self.server:
            needed_by |= dict.fromkeys(("tls_ca", "tls_name", "token_file"), "server")
        for key, need in needed_by.items():
            if key in changed:
                raise SettingError(key, f"only valid with {need}")
        credentials = ("server_cert", "server_key", "tls_ca", "token_file")
        missing = [key for key in credentials if key not in changed]
        if self.has_server_job and 0 < len(missing) < len(credentials):
            raise SettingError(
                "server",
                f"job: a server that other machines may ask requires {', '.join(missing)} as well",
            )

    @property
    def mode_class(self) -> type[Mode]:
        with _about("mode"):
            return mode_class(self.mode)

    @property
    def schedule_class(self) -> type[Schedule]:
        from ragauge.pipelines.schedules.base import Schedule  # which imports numpy

        with _about("schedule"):
            return registry.component("schedule", self.schedule, Schedule)

    def make_schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule with its options.

        Raises:
            SettingError: these do not fit it.
        """
        schedule = self.schedule_class
        options: dict[str, Any] = self.model_dump(include={key.name for key in fields(schedule)})
        return schedule(**options, seed=seed)

    @property
    def without_schedule(self) -> dict[str, Any]:
        """Return the keys that say nothing of the schedule."""
        return self.model_dump(
            exclude={"schedule", *(key.name for key in fields(self.schedule_class))}
        )

    @property
    def queries_index(self) -> bool:
        return self.schedule_class.queries_index

    @property
    def hides_search(self) -> bool:
        """Whether nprobe is chosen so that decoding hides the search: PipeRAG's S3."""
        return self.nprobe == "hide"

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of servers that run already."""
        return self.server if isinstance(self.server, list) else []

    @property
    def has_server_job(self) -> bool:
        """Whether the workflow serves its index in a job of its own."""
        return self.server == "job"


def check_model(settings: PipelineSettings, model: str, dtype: str, device: str) -> None:
    """Raise SettingError if a pipeline's engine does not run its model, or it would score with
    random weights. `model` is its source, which may be a checkpoint of a mode with a model of its
    own.
    """
    if settings.engine == "onnx" and dtype not in (AUTO, *ONNX_DTYPES[device]):
        choices = " or ".join(ONNX_DTYPES[device])
        raise SettingError(
            "engine", f"'onnx' requires a decoder in {choices} on device {device!r}, not {dtype}"
        )
    needs_weights = settings.mode_class.own_model and settings.task == "perplexity"
    if needs_weights and not resolver.is_retro(model):
        remedy = "give a model that is a checkpoint of RETRO"
        raise SettingError("task", f"'perplexity' is meaningless with random weights; {remedy}")
