"""What becomes of a retrieval: servers that are killed, hang or were never there, garbage, wrong
certificates.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import grpc
import pytest

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service import wire
from ragauge.pipelines.service.client import Client, RetrievalError
from ragauge.pipelines.service.credentials import server_credentials
from ragauge.pipelines.service.fanout import Fanout
from ragauge.pipelines.service.process import running_command

SLOW = Query(text=parts.SLEEP)  # half a second
PLAIN = Query(text="a")
SLACK_S = 2.0  # that an error may come after its deadline, on a busy machine


@contextmanager
def ends_within(seconds):
    started = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - started < seconds + SLACK_S


def error_of(client):
    """The one line of a retrieval that fails, which names server and request."""
    with pytest.raises(RetrievalError) as caught:
        client.search([PLAIN])
    text = str(caught.value)
    assert re.match(rf"retrieval server {re.escape(client.address)}, search of 1 query: ", text)
    return text


def assert_answers(searcher):
    """It finds what the whole toy finds."""
    queries = parts.queries(4)
    parts.assert_same(searcher.search(queries), parts.Toy().search(queries))


def free_port():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def server():
    """A server that survives what the tests do to it."""
    with parts.process() as running:
        yield running


# --- servers that are not there, or no longer ---


def test_the_server_is_killed_during_a_call():
    with pytest.raises(RetrievalError, match="killed by SIGKILL"):
        search_a_server_that_is_killed()


def search_a_server_that_is_killed():
    with parts.process() as running, Client(running.address, deadline_s=10) as client:
        pending = client.start([Query(text=parts.HANG)])
        client.describe()  # the server has read what came before
        running.process.kill()
        with ends_within(1):
            pending.result()


def test_a_server_that_comes_back_is_reconnected_to_where_asked():
    port = free_port()
    with (
        parts.process("--port", str(port)) as first,
        Client(first.address, deadline_s=15, retries=4) as client,
    ):
        pending = client.start([SLOW])
        client.describe()
        first.process.kill()
        first.process.wait()
        with parts.server(parts.Toy(), port=port):
            parts.assert_same(pending.result(), parts.Toy().search([SLOW]))


def test_a_server_that_hangs(server):
    with Client(server.address, deadline_s=0.5) as client:
        client.search([PLAIN])
        os.kill(server.process.pid, signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)  # until each of its threads has stopped
        with ends_within(0.5):
            assert "no answer within 0.5 s" in error_of(client)
        with (
            ends_within(0.3),
            pytest.raises(RetrievalError, match=r"health: no answer within 0\.3 s"),
        ):
            client.wait_until_ready(0.3)
        os.kill(server.process.pid, signal.SIGCONT)
        assert len(client.search([PLAIN])) == 1


def test_a_part_that_hangs_is_an_error_or_a_labelled_answer():
    with (
        parts.server(parts.Toy(part=0, of=2)) as healthy,
        parts.process("--part", "1", "--of", "2", stop_s=0.1) as hung,
        Client(healthy.address, deadline_s=0.5) as one,
        Client(hung.address, deadline_s=0.5) as other,
    ):
        assert_answers(Fanout([one, other]))
        os.kill(hung.process.pid, signal.SIGSTOP)
        os.waitpid(hung.process.pid, os.WUNTRACED)
        with (
            ends_within(0.5),
            pytest.raises(RetrievalError, match=f"retrieval server {hung.address}, search"),
        ):
            Fanout([one, other]).search(parts.queries(4))
        with ends_within(0.5):
            found = Fanout([one, other], partial=True).search(parts.queries(4))
        assert all(answer.missing == (hung.address,) for answer in found)
    assert hung.process.returncode == -signal.SIGKILL, "the block's end did not wait for it"


# --- the end of a server ---


def test_sigterm_finishes_what_runs_and_refuses_what_is_new():
    with parts.process() as running, Client(running.address) as client:
        pending = client.start([SLOW])
        client.describe()
        time.sleep(0.1)
        running.process.terminate()
        with suppress(RetrievalError):  # it looks for the signal a few times a second
            for _ in range(500):
                client.describe()
                time.sleep(0.01)
        error_of(client)
        parts.assert_same(pending.result(), parts.Toy().search([SLOW]))
        assert running.process.wait(5) == 0


def test_a_server_ends_with_the_job_that_started_it():
    code = (
        "import sys, time; from ragauge.pipelines.service import process\n"
        "command = process.running_command([sys.executable, sys.argv[1], '--while-stdin-open'])\n"
        "with command as server: print(server.process.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, parts.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        pid = int(job.stdout.readline())
        job.kill()
        end = time.monotonic() + 5
        while not _is_gone(pid):
            assert time.monotonic() < end
            time.sleep(0.02)


def _is_gone(pid):
    """Ended, whether or not whoever adopted it has taken note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "raise SystemExit('index.faiss: no such file')",
            "ended with exit code 1: index.faiss: no such file",
        ),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL: it wrote no message"),
        ("import time; time.sleep(60)", "did not start to serve within 0.5 s; it was killed"),
    ],
)
def test_a_server_that_does_not_come_up_says_why(code, message):
    command = running_command([sys.executable, "-c", code], start_s=0.5, stop_s=1)
    with pytest.raises(RetrievalError, match=re.escape(message)), command:
        pass


# --- what is sent to it ---


def test_a_compressed_message_is_refused_before_it_is_unpacked(server):
    """64 MiB of zeros are 64 KiB on the wire, within the limit of a message."""
    memory = resident_bytes(server.process.pid)
    with grpc.insecure_channel(server.address) as channel:
        search = channel.unary_unary(f"/{wire.SERVICE}/Search")
        with pytest.raises(grpc.RpcError) as caught:
            search(bytes(64 << 20), timeout=20, compression=grpc.Compression.Gzip)
        assert caught.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL)
    with Client(server.address) as client:
        assert_answers(client)
    assert resident_bytes(server.process.pid) - memory < 40e6


def resident_bytes(pid):
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Certificates of 127.0.0.1 (server) and example.org (elsewhere) of one authority, and another
    authority.
    """
    trustme = pytest.importorskip("trustme", reason="needs trustme")
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    for name, host in {"server": "127.0.0.1", "elsewhere": "example.org"}.items():
        issued = authority.issue_cert(host)
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
    return folder


def tls_server(folder, name):
    tls = server_credentials(folder / f"{name}.pem", folder / f"{name}.key")
    return parts.server(parts.Toy(), tls=tls)


def test_with_the_right_certificate_answers_are_the_same(certificates):
    server = tls_server(certificates, "server")
    with server, Client(server.address, tls_ca=certificates / "ca.pem") as client:
        assert_answers(client)


@pytest.mark.parametrize(
    ("name", "authority"), [("server", "other-ca.pem"), ("elsewhere", "ca.pem"), ("server", None)]
)
def test_a_wrong_certificate_or_none_is_an_error(certificates, name, authority):
    with tls_server(certificates, name) as server:
        tls_ca = certificates / authority if authority else None
        with Client(server.address, deadline_s=3, tls_ca=tls_ca) as client, ends_within(3):
            error_of(client)
