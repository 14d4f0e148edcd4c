"""Retrieval servers that are jobs of their own, and the pipelines that ask them
(docs/architecture.md).
"""

from types import SimpleNamespace

from ragauge import registry
from ragauge.config.code import code_of
from ragauge.config.experiment import Config
from ragauge.config.plan.part import Labels, PlanPart, manifest
from ragauge.config.plan.pipelines import PipelinePlan
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.sizes import index_mb

CREDENTIALS = ("server_cert", "server_key", "tls_ca", "token_file")
MIN_MINUTES = 2880
# that a pipeline asks its server, in the mean over many, one after another on one GPU
PIPELINE_MINUTES = 40
SERVER_MB = 4000  # of a server, besides its index
START_DELAY_S = 60  # by which a server starts before its pipelines, where Slurm has room for it


class ServerPlan(PlanPart):
    """Labels: database and index of a server; pipeline of one of its clients."""

    def __init__(self, config: Config, cores: int) -> None:
        super().__init__(config, cores)
        self._pipelines = PipelinePlan(config, cores)

    def needs(self, labels: Labels) -> list[str]:
        """Return what the pipelines of a server read, each file once."""
        plan = self._pipelines
        parts = (
            self.index_path(self.paths.gathered),
            plan.index,
            plan.decoder,
            plan.adapters,
            plan.export,
        )
        read = [part(pipeline) for pipeline in self._clients(labels) for part in parts]
        encoder = manifest(self.config.databases[labels.database].encoder)
        client = self.config.pipelines[self._clients(labels)[0].pipeline]
        access = filter(None, (getattr(client, key) for key in CREDENTIALS))
        return list(
            dict.fromkeys([encoder, *access, *(path for path in read if isinstance(path, str))])
        )

    def threads(self, labels: Labels) -> int:
        return self.config.server_threads((labels.database, labels.index))

    def runtime(self, labels: Labels) -> int:
        """Minutes: two days, those of the longest of its pipelines' jobs, or what all take one
        after another.
        """
        clients = self._clients(labels)
        return max(
            MIN_MINUTES, *map(self._pipelines.runtime, clients), PIPELINE_MINUTES * len(clients)
        )

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        """Megabytes of the index, all of which its searches read, and of the server; more in a
        further attempt.
        """
        return index_mb(self.config.databases[labels.database], labels.index) + attempt * SERVER_MB

    def options(self, labels: Labels) -> list[str]:
        """Return the encoder of the index; and where the server has a certificate, what lets other
        machines reach it.
        """
        database = self.config.databases[labels.database]
        encoder = [f"--encoder={database.encoder}", f"--engine={database.engine}"]
        client = self.config.pipelines[self._clients(labels)[0].pipeline]
        if client.server_cert is None:
            return encoder
        return [
            *encoder,
            "--host=0.0.0.0",
            f"--tls-cert={client.server_cert}",
            f"--tls-key={client.server_key}",
            f"--token-file={client.token_file}",
        ]

    def code(self, labels: Labels) -> str:
        """Return what serves an index, whose type is found by its name."""
        kind = self.config.databases[labels.database].indexes[labels.index].type
        return code_of("cli.serve", components=[registry.module_name("index", kind)])

    def pipeline_options(self, labels: Labels) -> list[str]:
        address = self.index_path(self.paths.server_address)(labels)
        return [*self._pipelines.options(labels), f"--server-file={address}"]

    def begin(self, labels: Labels) -> str:
        """Slurm's options for a pipeline: its own, and to start after its server, which is
        submitted at the same time. Else pipelines could take the last cores of a cluster, and wait
        there for a server that waits for them.
        """
        return " ".join(
            filter(None, [self._pipelines.node(labels), f"--begin=now+{START_DELAY_S}"])
        )

    def clients(self, pending: list[Labels]) -> dict[str, list[str]]:
        """For each server's file of clients the records that pending pipelines will make."""
        pattern = self.paths.server_clients
        named: dict[str, list[str]] = {
            pattern.format(database=d, index=i): [] for d, i in self.config.servers()
        }
        for labels in pending:
            records = f"{self.paths.served}.jsonl".format(pipeline=labels.pipeline)
            named[self.index_path(pattern)(labels)].append(records)
        return named

    def check(self, pending: list[Labels], at_a_time: int | None, cluster: bool) -> None:
        """Raise UserError if the servers of pending pipelines cannot run at the same time as one of
        these. `at_a_time`: cores of a machine, or jobs of a `cluster`, where pipelines may run on
        other machines than their server; None: not limited.
        """
        pipelines = {labels.pipeline for labels in pending}
        servers = {
            server: clients
            for server, clients in self.config.servers().items()
            if pipelines & set(clients)
        }
        needed = len(servers) if cluster else sum(map(self.config.server_threads, servers))
        if servers and at_a_time is not None and at_a_time <= needed:
            needs = f"need at least {needed + 1} {'jobs at a time' if cluster else 'cores'}"
            raise UserError(
                f"pipelines: {len(servers)} servers that are jobs (server: job) and a pipeline "
                f"{needs}; this run has {at_a_time}"
            )
        for label in (labels[0] for labels in servers.values() if cluster):
            if self.config.pipelines[label].server_cert is None:
                raise UserError(
                    f"pipelines.{label}.server: "
                    f"on a cluster other machines ask the server of a job; give {', '.join(CREDENTIALS)}"
                )

    def _clients(self, labels: Labels) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pipeline=label)
            for label in self.config.servers()[labels.database, labels.index]
        ]
