"""One job of generation with retrieval: pipelines with their database, decoder and servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cost.machine import provenance
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.digest import digest
from ragauge.pipelines import pipeline
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.evaluation import texts
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.retrieval.index import merged_folder
from ragauge.pipelines.service.cores import pin
from ragauge.pipelines.specification import PipelineSpecification
from ragauge.pipelines.windows import check_chunk_tokens

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
            about = client.describe()
            if about.tokenizer != database.manifest["tokenizer"]:
                raise UserError(
                    f"{address}: serves chunks cut with a different tokenizer than {database.folder}"
                )
            check_chunk_tokens(about.chunk_tokens, address)
            clients.append(client)
        return clients[0] if len(clients) == 1 else Fanout(clients)


def run(
    specifications: Mapping[Path, PipelineSpecification],
    folder: Path,
    servers: Servers,
    *,
    adapters: Path | None = None,
    exported: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Score or continue every sequence that files of records do not have yet.

    Args:
        specifications: what is known of each file's pipeline before any file is read. Where there
            are several, their schedules alone differ, and their timed trials take turns.
        folder: the chunk database, with its held-out text.
        servers: where the index is searched; empty where no schedule queries one.
        adapters: weights that RETRO-fit trained.
        exported: graphs of the decoder, which ONNX Runtime runs.
        overwrite: run every sequence again.

    Raises:
        UserError: a file or server is missing, damaged or of another build.
    """
    [first, *_] = specifications.values()
    settings = first.pipeline
    with ExitStack() as opened:
        # before this process is pinned to cores, which its children inherit
        servers = servers.started(opened)
        if settings.cores:
            pin(settings.cores)
        database = Database(folder)
        if any(each.pipeline.schedule_class.reads_neighbours for each in specifications.values()):
            check_chunk_tokens(database.chunk_tokens, str(folder))
        checkpoint = Checkpoint(
            first.source,
            dtype=first.dtype or "float32",
            device=first.device or "cpu",
            threads=settings.threads,
            adapters=adapters,
            exported=exported,
            seed=first.seed,
            vocabulary=database.vocabulary,
            tokenizer=database.tokenizer,
        )
        name, sha256 = first.mode.origin(checkpoint)
        checkpoint = replace(checkpoint, sha256=sha256)
        evaluation = first.evaluation
        is_searched = any(each.pipeline.queries_index for each in specifications.values())
        searched = servers if is_searched else None
        index_sha256 = searched.index_sha256() if searched else None
        hashes = {
            "source": name,
            "model_sha256": sha256,
            "adapters_sha256": checkpoint.adapters_sha256,
            "database_sha256": database.sha256,
            "evaluation_sha256": database.evaluation_set(evaluation).sha256 if evaluation else None,
        }
        is_published = settings.task == "perplexity" and settings.scoring == "published"
        read = texts(database, settings.tokens, settings.limit, evaluation, published=is_published)
        about = {"provenance": provenance(), "database": database.counts}

        @cache
        def load() -> dict[str, Any]:
            """Load the decoder, and connect the searcher: what the pipelines share."""
            lm = first.mode.load(checkpoint)
            database.check_tokenizer(lm.tokenizer, first.source)
            shared: dict[str, Any] = {"lm": lm, "passages": database}
            if searched:
                shared["searcher"] = searched.connect(database, opened)
                shared["network_s"] = shared["searcher"].round_trip_s()
            return shared

        def make(specification: PipelineSpecification) -> pipeline.Pipeline:
            return pipeline.Pipeline(specification=specification, **load())

        runs = []
        for out, specification in specifications.items():
            code = digest("ragauge.pipelines.pipeline", *specification.component_modules)
            own = index_sha256 if specification.pipeline.queries_index else None
            update = hashes | {"index_sha256": own, "code": code}
            complete = specification.model_copy(update=update)
            load_one = partial(make, complete)
            runs.append(
                pipeline.run(load_one, read, complete, out, overwrite=overwrite, about=about)
            )
        pipeline.in_turns(runs, first.seed)
