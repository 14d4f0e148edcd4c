"""Servers of language models that a run starts and ends: llama.cpp's own, from the wheel xllamacpp.

`python -m ragauge.measure.servers FILE.gguf NAME THREADS` serves it on a free port while standard
input is open.
"""

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from ragauge.assets import resolver, store
from ragauge.errors import UserError

SERVERS = ("llama.cpp",)
SLOTS = 4
CONTEXT = 8192  # requests that are answered together, and tokens of each
KEY = "RAGAUGE_SERVER_KEY"  # hands the key of the server to it


@contextmanager
def serving(
    server: str, model: str, threads: int | None = None, environment: str = "OPENAI"
) -> Iterator[str]:
    """Serve a model for the length of the block: its URL, which with a new key and the server's name
    stands in the environment meanwhile.

    Jobs that the block starts inherit both. The server ends with this process, however that ends.

    Args:
        server: one of SERVERS.
        model: a name in the catalog, a source or a folder with a GGUF file, or such a file.
        threads: of the server; None: all cores.
        environment: prefix of the variables, as of a model's key `served.environment`.

    Raises:
        UserError: the wheel is missing, there is no GGUF file, or the server does not start.
    """
    from ragauge.pipelines.service.client import RetrievalError
    from ragauge.pipelines.service.process import running_command

    file = gguf_file(model)
    key = secrets.token_urlsafe(16)
    variables = {f"{environment}_BASE_URL": "", f"{environment}_API_KEY": key, KEY: key}
    # its address is another one each time
    variables[f"{environment}_SERVER"] = f"{server}, sha256 {store.digest(store.contents(file))}"
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with running_command(
            [sys.executable, "-m", __name__, str(file), model, str(threads or "")]
        ) as running:
            os.environ[f"{environment}_BASE_URL"] = url = f"{running.address}/v1"
            yield url
    except RetrievalError as error:
        raise UserError(f"--serve {server}: {error}") from None
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})


def gguf_file(model: str) -> Path:
    """The first GGUF file of a model.

    Raises:
        UserError: there is none.
    """
    path = Path(model)
    if path.suffix == ".gguf" and path.is_file():
        return path
    resolver.fetch_pin(model)
    facts = resolver.describe(model)
    fetched = resolver.fetch(facts["source"], sha256=facts["pinned_sha256"])
    files = [fetched] if fetched.suffix == ".gguf" else sorted(fetched.rglob("*.gguf"))
    if not files:
        raise UserError(f"--serve: {model} has no GGUF file, which llama.cpp reads")
    return files[0]


def _serve(file: str, name: str, threads: str) -> None:
    """Announce llama.cpp's server, and serve until standard input ends."""
    xllamacpp = import_module("xllamacpp")  # has no types
    from ragauge.pipelines.service.process import ANNOUNCEMENT

    # of a terminal: the process that started this one ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.model_alias = {name}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT
    params.endpoint_metrics = True
    if threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    params.api_keys = [os.environ[KEY]]
    server = xllamacpp.Server(params)
    print(f"{ANNOUNCEMENT}{server.listening_address}", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what follows
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # without waiting for requests under way


if __name__ == "__main__":
    _serve(*sys.argv[1:])
