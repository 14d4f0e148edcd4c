"""What a run asks of others is checked before it starts, one line each."""

import pytest

from endpoints import Reply, says, served, streams
from ragauge.assets import hub, resolver
from ragauge.config import sources
from ragauge.config.loading import parse
from ragauge.config.plan.part import manifest
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError

MODEL = "hf:owners/gated"
DATA = "results/r/training/t/data/train.jsonl"


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    for name in ("WRITER", "JUDGE"):
        for key in ("URL", "MODEL", "KEY"):
            monkeypatch.delenv(f"RAGAUGE_{name}_{key}", raising=False)


@pytest.fixture
def plan():
    config = {"run": "r", "models": {"m": {"source": MODEL}}}
    config |= {"training": {"t": {"model": "smollm2-135m-instruct", "writer": "endpoint"}}}
    config |= {"datasets": {"nq_open": {}}, "methods": {"cfic": {}}, "judge": {"methods": ["cfic"]}}
    return Plan(parse(config, "c.yaml"))


def test_each_refusal_is_a_line(plan, monkeypatch):
    def refuse(repository, name):
        raise UserError(f"hf:{repository}: access is granted by its owners")

    monkeypatch.setattr(hub, "file", refuse)
    judged = plan.paths.judgements.format(dataset="nq_open", model="m", variant="cfic")
    with pytest.raises(UserError) as error:
        sources.check_start(plan, {manifest(MODEL), DATA, judged})
    assert str(error.value).splitlines() == [
        "hf:owners/gated: access is granted by its owners",
        "RAGAUGE_WRITER_URL: is not set; it names the endpoint that writes the questions",
        "RAGAUGE_JUDGE_URL: is not set; it names the endpoint that judges, unless judge.model names a local judge",
    ]
    # nothing of theirs is made
    sources.check_start(plan, {"results/r/answers/nq_open/m/cfic.jsonl"})


@pytest.mark.parametrize("status", [200, 401])
def test_an_endpoint_is_asked_for_a_word(plan, monkeypatch, status):
    with served(lambda _: says("ready") if status == 200 else Reply(b"no", status)) as endpoint:
        monkeypatch.setenv("RAGAUGE_WRITER_URL", endpoint.url)
        monkeypatch.setenv("RAGAUGE_WRITER_MODEL", "m")
        sources.check_start(plan, {DATA}, asks=False)
        if status == 200:
            sources.check_start(plan, {DATA})
            return
        with pytest.raises(UserError, match=r"endpoint .*, model m: HTTP 401"):
            sources.check_start(plan, {DATA})


@pytest.mark.parametrize("status", [200, 401])
def test_a_served_model_is_asked_for_a_word(status, monkeypatch):
    models = {"m": {"source": "openai:gpt", "served": {"environment": "MINE"}}}
    config = {"run": "r", "models": models, "datasets": {"nq_open": {}}, "methods": {"naive": {}}}
    plan = Plan(parse(config, "c.yaml"))
    made = {"results/r/answers/nq_open/m/naive.jsonl"}
    monkeypatch.delenv("MINE_BASE_URL", raising=False)
    sources.check_start(plan, set())
    with pytest.raises(UserError, match=r"^MINE_BASE_URL: is not set; openai:gpt needs a server"):
        sources.check_start(plan, made, asks=False)
    with served([streams("ready") if status == 200 else Reply(b"no", status)]) as endpoint:
        monkeypatch.setenv("MINE_BASE_URL", endpoint.url)
        if status == 200:
            sources.check_start(plan, made)
            return
        with pytest.raises(UserError, match=r"endpoint .*, model gpt: HTTP 401"):
            sources.check_start(plan, made)


def test_an_archive_that_is_refused_is_told_and_what_is_not_pinned_is_named(
    plan, monkeypatch, capsys
):
    with (
        served(lambda _: Reply(b"")) as endpoint,
        pytest.raises(UserError, match=r"model.zip: HTTP [45]\d\d"),
    ):
        resolver.check_access(f"{endpoint.url}/model.zip")  # which it has not
    monkeypatch.setattr(hub, "file", lambda *_: None)
    sources.check_start(plan, {manifest(MODEL)})
    assert f"not pinned by a hash or a commit: {MODEL}; to pin them" in capsys.readouterr().err
