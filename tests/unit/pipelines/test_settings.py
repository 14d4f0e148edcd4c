"""The section `pipelines` of a configuration: defaults, and mistakes told in one line with their
place.
"""

import pytest
import yaml

from ragauge import registry
from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.errors import UserError
from small_config import BASE
from tables import cases


def parsed(pipelines, **changes):
    return loading.parse({**BASE, "pipelines": pipelines, **changes}, "c.yaml")


@pytest.mark.parametrize("kind", registry.names("schedule"))
def test_a_key_is_its_schedule_and_every_schedule_can_be_configured(kind):
    made = parsed({kind: {}})
    assert made.pipelines[kind].schedule_class.__module__.endswith(kind)
    assert made.pipelines[kind].queries_index == (kind not in ("no_retrieval", "random"))
    assert made.pipeline_model(made.pipelines[kind]) == "smollm2-135m-instruct"
    assert made.pipeline_database(made.pipelines[kind]) == "wiki"


@pytest.mark.parametrize(
    ("pipelines", "message"),
    cases("""
{retro: {interval: 32}} -> retro.interval: schedule 'retro' requires 64, not 32
{p: {schedule: piperag, interval: 7}} -> p.interval: 7 does not divide
{retro: {nprobe: hide}} -> retro.nprobe: 'hide' requires a schedule that searches ahead
{piperag: {nprobe: hide}} -> piperag.nprobe: 'hide' requires task 'generate'; to score text
{retro: {nprobe: 0}} -> retro.nprobe: must be greater than or equal to 1 or 'hide', not 0
{retro: {mode: cross_attention}} -> retro.mode: 'cross_attention' must be trained first; give retrofit_minutes
{retro: {mode: cross_attention, retrofit_minutes: 8.0, engine: onnx}} ->
  retro.engine: 'onnx' does not run mode 'cross_attention'; known: torch
{retro: {mode: cross}} -> retro.mode: unknown mode 'cross'; known: cross_attention, joint, retro
{retro: {server: ['node:0']}} -> retro.server: retrieval address 'node:0': must be host:port
{random: {server: ['node:1']}} -> random.server: schedule 'random' asks no index
{retro: {token_file: t}} -> retro.token_file: only valid with server
{retro: {index: iv}} -> retro.index: unknown index 'iv'; did you mean 'ivf'?
{retro: {model: llama}} -> retro.model: unknown model 'llama'
{retro: {database: wikis}} -> retro.database: unknown database 'wikis'; did you mean 'wiki'?
{retro: {intervall: 8}} -> retro.intervall: unknown key 'intervall'; did you mean 'interval'?
{piprag: {}} -> piprag.schedule: unknown schedule 'piprag'; did you mean 'piperag'?
{retro: {mode: retro}} -> retro.task: 'perplexity' is meaningless with random weights
{retro: {first_nprobe: 32}} -> retro.first_nprobe: only valid with nprobe 'hide'
{retro: {encoding: every_window}} -> retro.encoding: 'every_window' requires
{retro: {interleaved: true}} -> retro.interleaved: requires task 'generate'
{retro: {interleaved: true, task: generate}, random: {interleaved: true, task: generate, tokens: 300}} ->
  retro.interleaved: no other interleaved pipeline differs in its schedule alone
{retro: {}, random: {scoring: after_first_query}} ->
  random.scoring: 'after_first_query', but pipelines.retro has 'published'
{retro: {mode: retro, retrofit_minutes: 8.0, task: generate}} ->
  retro.retrofit_minutes: only valid with mode 'cross_attention' or 'joint', not 'retro'
"""),
)
def test_mistakes_name_their_place(pipelines, message):
    with pytest.raises(UserError) as error:
        parsed(pipelines)
    assert str(error.value).startswith(f"c.yaml: pipelines.{message}")


def test_chunks_that_are_not_as_long_as_queries_are_refused_where_neighbours_are_read():
    databases = {"wiki": {**BASE["databases"]["wiki"], "chunk_tokens": 16}}
    parsed({"no_retrieval": {}}, databases=databases)
    message = "c.yaml: databases.wiki: chunk_tokens: must be 64 where a decoder reads neighbours"
    with pytest.raises(UserError, match=f"^{message}, got 16"):
        parsed({"retro": {}}, databases=databases)


def test_an_exported_decoder_is_given_where_the_engine_is_onnx(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(
        yaml.safe_dump(
            {**BASE, "pipelines": {"none": {"schedule": "random", "engine": "onnx"}, "random": {}}}
        )
    )
    common = (
        f"piperag run --config {path} --database {tmp_path} --out {tmp_path / 'x.jsonl'}".split()
    )
    assert main([*common, "--entry", "none"]) == 2
    assert "--entry none: requires --onnx" in capsys.readouterr().err
    for option in ("--onnx", "--adapters"):
        assert main([*common, "--entry", "random", option, str(tmp_path)]) == 2
        assert f"--entry random: does not take {option}" in capsys.readouterr().err
    assert main([*common, "--entry", "rando"]) == 2
    assert "did you mean 'random'" in capsys.readouterr().err


def test_a_pipeline_needs_a_database():
    with pytest.raises(UserError, match="needs a chunk database"):
        parsed({"retro": {}}, databases={})
