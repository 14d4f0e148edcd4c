"""A server that is a job of its own: when it ends, how its clients find it, and what a
configuration may say of it.
"""

import os
import time
from types import SimpleNamespace

import pytest

import service_parts as parts
from ragauge.cli._main import main
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.pipelines.service import jobs
from small_config import parsed


def test_a_server_ends_when_all_files_exist_or_have_failed_for_long(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    files[0].touch()
    assert not jobs.are_finished(files)
    mark = tmp_path / "b.failed"
    mark.touch()
    assert not jobs.are_finished(files), "it may be tried again"
    long_ago = time.time() - 1.1 * jobs.FAILED_S
    os.utime(mark, (long_ago, long_ago))
    assert jobs.are_finished(files)


def test_a_client_waits_until_a_server_answers_there(tmp_path):
    path = tmp_path / "address"
    with parts.server(parts.Toy()) as server:
        jobs.write_address(path, server.address)
        assert jobs.wait_for_server(path, limit_s=30) == server.address


def test_a_server_that_failed_or_never_comes_is_not_awaited_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_S", 0.02)
    path = tmp_path / "address"
    with pytest.raises(
        UserError, match=r"address: no retrieval server answered there within 0\.1 s"
    ):
        jobs.wait_for_server(path, limit_s=0.1)
    (tmp_path / "address.failed").touch()
    monkeypatch.setattr(jobs, "FAILED_S", 0.1)
    with pytest.raises(
        UserError, match="address: the job of this retrieval server failed; its log says why"
    ):
        jobs.wait_for_server(path, limit_s=30)


def test_a_server_that_nobody_needs_opens_no_index(tmp_path):
    listed = tmp_path / "clients"
    listed.write_text("")
    assert main(f"serve --database {tmp_path} --index none --until {listed}".split()) == 0


SECURED = {
    "server_cert": "cert.pem",
    "server_key": "key.pem",
    "tls_ca": "ca.pem",
    "token_file": "token",
}


def experiment(**pipelines):
    databases = {"d": {"corpus": "wikipedia-sample", "indexes": {"ivf": {}, "other": {}}}}
    return parsed(databases=databases, pipelines=pipelines)


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (
            {"schedule": "retro", "server_cert": "c.pem"},
            "pipelines.p.server_cert: only valid with server: job",
        ),
        (
            {"schedule": "retro", "server": "job", "server_cert": "c.pem", "token_file": "t"},
            "pipelines.p.server: job: a server that other machines may ask requires server_key, tls_ca as well",
        ),
        (
            {"schedule": "no_retrieval", "server": "job"},
            "pipelines.p.server: schedule 'no_retrieval' asks no index",
        ),
    ],
)
def test_a_configuration_that_no_server_fits_is_refused(pipeline, said):
    with pytest.raises(UserError) as error:
        experiment(p=pipeline)
    assert said in str(error.value)


def test_a_server_begins_when_all_of_its_pipelines_can_and_timed_ones_leave_it_its_cores():
    made = {"schedule": "retro", "server": "job"}
    config = experiment(
        a={**made, "server_threads": 3},
        b={**made, "task": "generate"},
        c={**made, "index": "other"},
    )
    plan = Plan(config, cores=8)
    needs = plan.servers.needs(SimpleNamespace(database="d", index="ivf"))
    assert "results/x/databases/d/indexes/ivf/merged/manifest.json" in needs
    assert not any("other" in path for path in needs)
    assert plan.servers.threads(SimpleNamespace(database="d", index="ivf")) == 3
    assert plan.pipelines.threads(SimpleNamespace(pipeline="b")) == 8 - 3 - 1
    due = [SimpleNamespace(pipeline="a"), SimpleNamespace(pipeline="c")]
    assert plan.servers.clients(due) == {
        "results/x/servers/d/ivf/clients": ["results/x/served/a.jsonl"],
        "results/x/servers/d/other/clients": ["results/x/served/c.jsonl"],
    }


def test_servers_need_room_beside_a_pipeline_and_on_a_cluster_credentials():
    made = {"schedule": "retro", "server": "job"}
    plan = Plan(experiment(a=made)).servers
    pending = [SimpleNamespace(pipeline="a")]
    plan.check(pending, 2, cluster=False)
    plan.check([], 1, cluster=False)
    with pytest.raises(UserError, match="need at least 2 cores; this run has 1"):
        plan.check(pending, 1, cluster=False)
    with pytest.raises(
        UserError, match=r"pipelines.a.server: on a cluster other machines ask .* server_cert"
    ):
        plan.check(pending, 100, cluster=True)
    secured = Plan(experiment(a={**made, **SECURED})).servers
    secured.check(pending, None, cluster=True)
    label = SimpleNamespace(database="d", index="ivf")
    options = secured.options(label)
    assert "--host=0.0.0.0" in options
    assert "--tls-cert=cert.pem" in options
    assert not any("host" in option for option in plan.options(label))
