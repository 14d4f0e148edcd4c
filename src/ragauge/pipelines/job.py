"""One job of generation with retrieval: a pipeline with its database, decoder and servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cost.machine import provenance
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256
from ragauge.pipelines import pipeline
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.evaluation import texts
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.retrieval.index import merged_folder
from ragauge.pipelines.service.cores import pin
from ragauge.pipelines.specification import PipelineSpecification

if TYPE_CHECKING:
    from ragauge.pipelines.service.client import Client
    from ragauge.pipelines.service.fanout import Fanout


@dataclass(frozen=True)
class Servers:
    """The retrieval servers of a job, and how it reaches them."""

    addresses: Sequence[str] = ()  # one for each part of the index
    # folder of the index, where it is on this machine's disks
    index: Path | None = None
    # of `ragauge serve`, where the job starts a server of that index; None: it starts none
    start_options: Sequence[str] | None = None
    access: Mapping[str, Any] = field(default_factory=dict)  # arguments of `Client`

    def started(self, opened: ExitStack) -> Servers:
        """Start the server of the index, if it is the job's own, until the stack is closed."""
        from ragauge.pipelines.service.process import running

        if self.start_options is None or self.index is None:
            return self
        server = opened.enter_context(running(self.index, options=self.start_options))
        return replace(self, addresses=(server.address,))

    def client(self, address: str) -> Client:
        from ragauge.pipelines.service.client import Client

        return Client(address, **self.access)

    def index_sha256(self) -> str:
        """Return the hashes of the searched index, wherever it is and whoever serves it.

        Raises:
            UserError: a server does not answer, or serves another index than the one on disk.
        """
        expected = None
        if self.index:
            expected = folders.sha256(merged_folder(self.index.parent.parent, self.index.name))
        if expected and self.start_options is not None:
            return expected
        hashes = []
        for address in self.addresses:
            with self.client(address) as client:
                hashes.append(client.describe().index)
        if expected and hashes != [expected]:
            raise UserError(f"{self.addresses[0]}: serves another index than {self.index}")
        return " ".join(hashes)

    def connect(self, database: Database, opened: ExitStack) -> Client | Fanout:
        """Return a searcher on the server, or on those of all parts at once."""
        from ragauge.pipelines.service.fanout import Fanout

        clients = []
        for address in self.addresses:
            client = opened.enter_context(self.client(address))
            if client.describe().tokenizer != database.manifest["tokenizer"]:
                raise UserError(
                    f"{address}: serves chunks cut with a different tokenizer than {database.folder}"
                )
            clients.append(client)
        return clients[0] if len(clients) == 1 else Fanout(clients)


def run(
    specification: PipelineSpecification,
    folder: Path,
    servers: Servers,
    out: Path,
    *,
    adapters: Path | None = None,
    exported: Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Score or continue every sequence that a file of records does not have yet.

    Args:
        specification: what is known before any file is read.
        folder: the chunk database, with its held-out text.
        servers: where the index is searched; empty where the schedule queries none.
        out: the file of records.
        adapters: weights that RETRO-fit trained.
        exported: graphs of the decoder, which ONNX Runtime runs.
        overwrite: run every sequence again.

    Returns:
        `out`.

    Raises:
        UserError: a file or server is missing, damaged or of another build.
    """
    settings = specification.pipeline
    with ExitStack() as opened:
        # before this process is pinned to cores, which its children inherit
        servers = servers.started(opened)
        if settings.cores:
            pin(settings.cores)
        database = Database(folder)
        checkpoint = _checkpoint(specification, database, adapters, exported)
        name, sha256 = specification.mode.origin(checkpoint)
        checkpoint = replace(checkpoint, sha256=sha256)
        evaluation = specification.evaluation
        hashes = {
            "model_sha256": sha256,
            "adapters_sha256": checkpoint.adapters_sha256,
            "database_sha256": database.sha256,
            "evaluation_sha256": database.evaluation_set(evaluation).sha256 if evaluation else None,
            "index_sha256": servers.index_sha256() if settings.queries_index else None,
            "code": digest("ragauge.pipelines.pipeline", *specification.component_modules),
        }
        specification = specification.model_copy(update={"source": name, **hashes})
        is_published = settings.task == "perplexity" and settings.scoring == "published"
        return pipeline.run(
            lambda: _load(specification, checkpoint, database, servers, opened),
            texts(database, settings.tokens, settings.limit, evaluation, published=is_published),
            specification,
            out,
            overwrite=overwrite,
            about={"provenance": provenance(), "database": database.counts},
        )


def _checkpoint(
    specification: PipelineSpecification,
    database: Database,
    adapters: Path | None,
    exported: Path | None,
) -> Checkpoint:
    settings = specification.pipeline
    return Checkpoint(
        specification.source,
        dtype=specification.dtype or "float32",
        device=specification.device or "cpu",
        threads=settings.threads,
        adapters=adapters,
        exported=exported,
        adapters_sha256=file_sha256(adapters) if adapters else None,
        weights=Path(settings.weights) if settings.weights else None,
        seed=specification.seed,
        vocabulary=database.vocabulary,
        tokenizer=database.tokenizer,
    )


def _load(
    specification: PipelineSpecification,
    checkpoint: Checkpoint,
    database: Database,
    servers: Servers,
    opened: ExitStack,
) -> Pipeline:
    """Load the decoder, and connect the searcher where the schedule queries an index."""
    lm = specification.mode.load(checkpoint)
    database.check_tokenizer(lm.tokenizer, specification.source)
    if not specification.pipeline.queries_index:
        return Pipeline(lm, specification, passages=database)
    searcher = servers.connect(database, opened)
    return Pipeline(lm, specification, searcher, network_s=searcher.round_trip_s())
