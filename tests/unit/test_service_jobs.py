"""A server that is a job of its own: when it ends, how its clients find it, and what a configuration may say of it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragauge.cli import main
from ragauge.errors import UserError
from ragauge.experiment.loading import parse
from ragauge.experiment.plan import Plan
from ragauge.retrieval.service import jobs, process
from ragauge.retrieval.service.finished import Finished
from ragauge.retrieval.service.server import Server
from ragauge.retrieval.service.settings import FORKS
from service_parts import ABOUT, Toy


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(tmp_path: Path, clock: Clock) -> jobs.Clients:
    """Of two files, at a server that waits ten seconds once one has failed."""
    listed = tmp_path / "clients"
    listed.write_text(f"{tmp_path / 'a'}\n{tmp_path / 'b'}\n")
    return jobs.Clients(listed, quiet_s=10, clock=clock)


def test_a_server_ends_when_all_is_made(tmp_path: Path, clients: jobs.Clients) -> None:
    (tmp_path / "a").touch()
    assert not clients.over()
    assert clients.left == [tmp_path / "b"]
    (tmp_path / "b").touch()
    assert clients.over()


def test_a_server_ends_when_all_is_made_or_given_up(tmp_path: Path, clients: jobs.Clients) -> None:
    jobs.mark(tmp_path / "a").touch()
    assert not clients.over()
    (tmp_path / "b").touch()
    assert clients.over()


def test_after_a_failure_it_waits_for_the_others_as_long_as_they_ask(
    tmp_path: Path, clients: jobs.Clients, clock: Clock
) -> None:
    clock.now = 1000.0
    assert not clients.over(), "nobody failed: clients may wait for their machines"
    jobs.mark(tmp_path / "a").touch()
    clients.asked(Finished("Search", "client"))
    clock.now += 9
    assert not clients.over()
    clock.now += 2
    assert clients.over()


def test_a_failure_before_it_began_may_be_tried_again(tmp_path: Path, clock: Clock) -> None:
    listed = tmp_path / "clients"
    listed.write_text(f"{tmp_path / 'a'}\n")
    jobs.mark(tmp_path / "a").touch()
    clients = jobs.Clients(listed, quiet_s=10, clock=clock)
    assert not jobs.mark(tmp_path / "a").exists()
    assert not clients.over()
    clock.now = 11.0
    assert clients.over(), "nothing says that it is tried again"


def test_an_address_is_awaited_until_a_server_answers_there(tmp_path: Path) -> None:
    path = tmp_path / "address"
    with Server(Toy(), ABOUT) as server:
        jobs.write_address(path, server.address)
        assert jobs.awaited(path, limit_s=30) == server.address
    jobs.remove_address(path, "127.0.0.1:1")
    assert path.exists(), "another server's address stays"
    jobs.remove_address(path, server.address)
    assert not path.exists()


def test_an_address_on_all_of_a_machines_is_told_by_its_name(tmp_path: Path) -> None:
    jobs.write_address(tmp_path / "address", "0.0.0.0:4321")
    assert (tmp_path / "address").read_text() == f"{socket.gethostname()}:4321\n"


def test_a_server_that_failed_or_never_comes_is_not_awaited_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "address"
    with pytest.raises(UserError, match=r"address: no retrieval server answered there within 0\.1 s"):
        jobs.awaited(path, limit_s=0.1, look_s=0.02)
    jobs.mark(path).touch()
    with pytest.raises(UserError, match="address: the job of this retrieval server failed; its log says why"):
        jobs.awaited(path, limit_s=30, failed_s=0.1, look_s=0.02)


def test_a_server_that_nobody_needs_opens_no_index(tmp_path: Path) -> None:
    listed = tmp_path / "clients"
    listed.write_text("")
    assert main(["serve", "--database", str(tmp_path), "--index", "none", "--until", str(listed)]) == 0


def test_a_list_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--database", str(tmp_path), "--index", "none", "--until", str(tmp_path / "no")]) == 2
    assert "no: cannot be read" in capsys.readouterr().err


SECURED = {"server_cert": "cert.pem", "server_key": "key.pem", "tls_ca": "ca.pem", "token_file": "token"}


def experiment(**pipelines: dict[str, Any]) -> Any:
    config = {
        "run": "t",
        "models": {"m": {"source": "smollm2-135m-instruct"}},
        "datasets": {"nq_open": {}},
        "methods": {"naive": {}},
        "databases": {"d": {"corpus": "wikipedia-sample", "indexes": {"ivf": {}, "other": {}}}},
        "pipelines": pipelines,
    }
    return parse(config, "t.yaml")


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ({"schedule": "retro", "server_cert": "c.pem"}, "pipelines.p.server_cert: only valid with server: job"),
        ({"schedule": "retro", "server_threads": 2}, "pipelines.p.server_threads: only valid with server: job"),
        (
            {"schedule": "retro", "server": "job", "server_cert": "c.pem", "token_file": "t"},
            "pipelines.p.server: job: a server that other machines may ask requires server_key, tls_ca as well",
        ),
        ({"schedule": "no_retrieval", "server": "job"}, "pipelines.p.server: schedule 'no_retrieval' asks no index"),
        ({"schedule": "retro", "server": "jobs"}, "pipelines.p.server"),
    ],
)
def test_a_configuration_that_no_server_fits_is_refused(pipeline: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        experiment(p=pipeline)
    assert said in str(error.value)


def test_pipelines_of_one_server_share_its_credentials() -> None:
    one, other = {"schedule": "retro", "server": "job", **SECURED}, {"schedule": "piperag", "server": "job"}
    with pytest.raises(UserError, match=r"pipelines.b.server_cert: None, but pipelines.a, which asks the same server"):
        experiment(a=one, b=other)
    assert len(experiment(a=one, b={**other, "index": "other"}).servers()) == 2


def test_a_server_begins_when_all_of_its_pipelines_can_and_timed_ones_leave_it_its_cores() -> None:
    made = {"schedule": "retro", "server": "job"}
    config = experiment(a={**made, "server_threads": 3}, b={**made, "task": "generate"}, c={**made, "index": "other"})
    plan = Plan(config, cores=8)
    label = lambda **values: type("Labels", (), values)()  # noqa: E731
    needs = plan.servers.needs(label(database="d", index="ivf"))
    assert "results/t/databases/d/indexes/ivf/merged/manifest.json" in needs
    assert not any("other" in path for path in needs)
    assert plan.servers.threads(label(database="d", index="ivf")) == 3
    assert plan.pipelines.threads(label(pipeline="b")) == 8 - 3 - 1
    due = [label(pipeline="a"), label(pipeline="c")]
    assert plan.servers.clients(due) == {
        "results/t/servers/d/ivf/clients": ["results/t/served/a.jsonl"],
        "results/t/servers/d/other/clients": ["results/t/served/c.jsonl"],
    }


def test_servers_need_room_beside_a_pipeline_and_on_a_cluster_credentials() -> None:
    made = {"schedule": "retro", "server": "job"}
    plan = Plan(experiment(a=made)).servers
    plan.check(2, cluster=False)
    with pytest.raises(UserError, match="need at least 2 cores; this run has 1"):
        plan.check(1, cluster=False)
    with pytest.raises(UserError, match=r"pipelines.a.server: on a cluster other machines ask .* server_cert"):
        plan.check(100, cluster=True)
    secured = Plan(experiment(a={**made, **SECURED})).servers
    secured.check(None, cluster=True)
    label = type("Labels", (), {"database": "d", "index": "ivf"})()
    options = secured.options(label)
    assert "--host=0.0.0.0" in options
    assert "--tls-cert=cert.pem" in options
    assert not any("host" in option for option in plan.options(label))


def test_a_server_of_a_job_is_a_fork_where_the_run_has_a_process_to_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    @contextmanager
    def noted(command: Sequence[str], **_: float) -> Iterator[None]:
        started.append(list(command))
        yield

    monkeypatch.setattr(process, "running_command", noted)

    def program() -> list[str]:
        """What is started, up to the verb."""
        with process.running(tmp_path / "db" / "indexes" / "ivf"):
            return started[-1][: started[-1].index("serve")]

    monkeypatch.setenv(FORKS, str(tmp_path / "ragauge"))
    assert program() == [sys.executable, "-m", "ragauge.cli"], "the process has not come up yet"
    (tmp_path / "ragauge").touch()
    assert program() == [str(tmp_path / "ragauge")]
    monkeypatch.delenv(FORKS)
    assert program() == [sys.executable, "-m", "ragauge.cli"]
