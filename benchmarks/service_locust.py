"""The load on a retrieval server by locust (https://locust.io), beside our own generator.

python benchmarks/_vectors.py --folder FOLDER --port 50051 & locust -f benchmarks/service_locust.py
--headless --users 64 --run-time 5m --host 127.0.0.1:50051 --json
"""

import itertools
import time
from typing import Any

import grpc
import grpc.experimental.gevent
from locust import User, task

grpc.experimental.gevent.init_gevent()  # before any channel: locust's users are greenlets

from ragauge.pipelines.service.client import method  # noqa: E402
from ragauge.pipelines.service.proto import ragauge_pb2 as pb  # noqa: E402

NUMBERS = itertools.count()
DISTINCT = 64


class Asker(User):
    """Sends one query after another."""

    def on_start(self) -> None:
        """Connect, each user by itself."""
        self._channel = grpc.insecure_channel(
            self.host, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._search = method(self._channel, "Search", pb.SearchReply)

    @task
    def search(self) -> None:
        """One query of one of the first vectors."""
        number = next(NUMBERS)
        query = pb.Query(tokens=pb.Tokens(ids=[number % DISTINCT]), k=10, nprobe=64)
        request = pb.SearchRequest(queries=[query])
        told: dict[str, Any] = {
            "request_type": "grpc",
            "name": "Search",
            "exception": None,
            "response_length": 0,
        }
        started = time.perf_counter()
        try:
            reply = self._search(request, timeout=60)
            told["response_length"] = reply.ByteSize()
        except grpc.RpcError as error:
            told["exception"] = error
        self.environment.events.request.fire(
            response_time=1e3 * (time.perf_counter() - started), **told
        )
