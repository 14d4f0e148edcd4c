"""A wrong configuration ends in one line that names the value, its place and the choices."""

import re

import pytest

from ragauge import registry
from ragauge.config import checks, loading, schema
from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.errors import UserError
from ragauge.testing import write_questions
from tables import cases

MODEL = "smollm2-135m-instruct"


def valid():
    return {
        "run": "trial",
        "models": {MODEL: {"dtype": "bfloat16"}},
        "datasets": {"nq_open": {"limit": 5}, "musique": None},
        "methods": {
            "naive": {},
            "sp_k4": {"method": "superposition", "top_k": 4, "limit": 3},
            "oracle": {"datasets": ["musique"]},
        },
        "latency": {"methods": ["naive", "sp_k4"], "dataset": "nq_open"},
        "items": [],
    }


def changed(path, value):
    data = valid()
    *sections, key = path.split("/")
    section = data
    for name in sections:
        section = section[name]
    section[key] = value
    return data


NAIVE_ON_MUSIQUE = {"methods": ["naive"], "dataset": "musique", "trials": 4}

# (path of the change, value, what the one line must hold)
MISTAKES = cases("""
sede, 1 -> c.yaml: sede: unknown key 'sede'; did you mean 'seed'? known: databases,
run, a/b -> c.yaml: run: 'a/b' must be made of letters, digits, '.', '_' and '-'
models/x, {source: smollm} -> c.yaml: models.x.source: unknown model 'smollm';
models/x, {source: no-model.gguf} -> models.x.source: 'no-model.gguf': no such path
models/x, {source: a/b-1} -> models.x.source: 'a/b-1': no such path; a hub repository is written hf:a/b-1
models/smollm2-135m-instruct, {resources: {gpus: 1}} -> resources.gpus: unknown key 'gpus'; did you mean 'gpu'?
models/smollm2-135m-instruct, {datasets: [nq]} -> datasets: unknown data set 'nq'; known: musique, nq_open
models/smollm2-135m-instruct, {dtype: fp32} -> c.yaml: models.smollm2-135m-instruct.dtype: must be
models/smollm2-135m-instruct, {engine: trch} -> models.smollm2-135m-instruct.engine: unknown engine 'trch';
models/smollm2-135m-instruct, {kv: int8} ->
  c.yaml: models.smollm2-135m-instruct.kv: must be 'full', 'int8_stored' or 'int4_stored', not 'int8'
models/smollm2-135m-instruct, {engine: trch, kv: int8_stored} ->
  models.smollm2-135m-instruct.kv: 'int8_stored' needs engine 'torch', not 'trch'; known there: full
datasets/nq_opn, {} -> c.yaml: datasets.nq_opn.dataset: unknown dataset 'nq_opn'; did you mean 'nq_open'?
datasets/nq_open, {limit: 0} -> c.yaml: datasets.nq_open.limit: must be greater than or equal to 1, not 0
datasets/nq_open, {data: no.jsonl} -> c.yaml: datasets.nq_open.data: no such file: no.jsonl
datasets/nq_open/options, {retrieved: no.jsonl} -> c.yaml: datasets.nq_open.options.retrieved: no such file: no.jsonl
datasets/nq_open, {options: {shufle: 1}} -> c.yaml: datasets.nq_open.options:
datasets/a b, {dataset: nq_open} -> c.yaml: datasets.a b: 'a b' must be made of letters
methods/sp, {method: superpositon} ->
  c.yaml: methods.sp.method: unknown method 'superpositon'; did you mean 'superposition'? known:
methods/sp_k4, {method: superposition, top_kk: 1} -> did you mean 'top_k'?
methods/sp_k4, {method: superposition, top_k: 0} -> c.yaml: methods.sp_k4
methods/naive, {datasets: [nq]} -> c.yaml: methods.naive.datasets: unknown data set 'nq';
latency/trails, 3 -> c.yaml: latency.trails: unknown key 'trails'; did you mean 'trials'?
latency/warmup, 0 -> c.yaml: latency.warmup: must be greater than or equal to 1, not 0
latency/methods, [sp_k1] -> c.yaml: latency.methods: unknown variant 'sp_k1'; did you mean 'sp_k4'?
latency, [{methods: [naive]}] -> c.yaml: latency.0.dataset: is missing
latency, [{methods: [naive], dataset: musique, trials: 4}, {methods: [naive], dataset: musique, trials: 4,
        trails: 3}] -> latency.1.trails: unknown key 'trails'; did
latency, [{methods: [naive], dataset: musique, trials: 4}, {methods: [naive], dataset: musique, trials: 4}] ->
  c.yaml: latency.1.dataset: there is already a protocol for 'musique'
judge, {methods: [naive], model: gpt} -> c.yaml: judge.model: unknown model 'gpt';
human_judgements, no.csv -> c.yaml: human_judgements: no.csv: cannot be read as CSV: [Errno 2]
items, [superposition_tabel_1] -> c.yaml: items: unknown item 'superposition_tabel_1'; did you mean
""")


@pytest.mark.parametrize(
    ("path", "value", "message"), MISTAKES, ids=[f"{p}={v}" for p, v, _ in MISTAKES]
)
def test_a_mistake_is_told_in_one_line(path, value, message):
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        loading.parse(changed(path, value), "c.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["{x}/q.jsonl", "{x}/*.jsonl", "{x}"])
def test_a_path_that_snakemake_would_read_as_a_pattern_is_refused(path, tmp_path):
    (tmp_path / "{x}").mkdir()
    write_questions(tmp_path / "{x}/q.jsonl")
    stated = valid() | {"datasets": {"nq_open": {"data": f"{tmp_path}/{path}"}}}
    reason = r"[^\n]*braces in a path"
    with pytest.raises(UserError, match=rf"^c.yaml: datasets\.nq_open\.data: {reason}"):
        loading.parse(stated, "c.yaml")
    with pytest.raises(UserError, match=rf"^a\.1\.b: {reason}"):
        checks.refuse_braces({"a": [1, {"b": f"path:{tmp_path}/{path}"}]})
    checks.refuse_braces(
        {"prompt": "answer {question}", "data": f"{tmp_path}/{{y}}", "n": [1, None]}
    )


def test_questions_whose_answers_depend_on_each_other_are_not_dealt_to_several_jobs():
    data = changed("datasets/nq_open", {"jobs": 2})
    loading.parse(data, "c.yaml")
    data["methods"]["tree"] = {"method": "prefix_tree"}
    with pytest.raises(
        UserError, match=r"datasets\.nq_open\.jobs: answers of tree depend on the questions"
    ):
        loading.parse(data, "c.yaml")


def test_a_model_is_asked_and_timed_on_its_data_sets_alone():
    data = changed(
        "models/small",
        {"source": "smollm2-135m-instruct", "datasets": ["musique"], "device": "cuda"},
    )
    data["datasets"] |= {"musique": {"max_new_tokens": 32}, "longbench_qasper": {}}
    checked = loading.parse(data, "c.yaml")
    assert {job.dataset for job in checked.answers() if job.model == "small"} == {"musique"}
    assert list(checked.measured("latency")) == [("nq_open", "smollm2-135m-instruct")]
    assert (checked.gpus("small"), checked.gpus("smollm2-135m-instruct")) == (1, 0)
    assert list(map(checked.max_new_tokens, ("musique", "nq_open", "longbench_qasper"))) == [
        32,
        100,
        128,
    ]
    stated = loading.parse({**data, "generation": {"max_new_tokens": 7}}, "c.yaml")
    assert list(map(stated.max_new_tokens, ("musique", "nq_open", "longbench_qasper"))) == [
        32,
        7,
        7,
    ]


def test_jobs_and_limits():
    checked = loading.parse(valid(), "c.yaml")
    limits = {(job.dataset, job.variant): checked.limit(job) for job in checked.answers()}
    assert limits == {
        ("nq_open", "naive"): 5,
        ("nq_open", "sp_k4"): 3,
        ("musique", "naive"): None,
        ("musique", "sp_k4"): 3,
        ("musique", "oracle"): None,
    }
    overview = checked.overview()
    assert "data sets nq_open (5 questions), musique (all questions)\n" in overview
    assert "answers   5 jobs\n" in overview


def test_a_run_may_have_a_latency_protocol_for_each_of_several_data_sets():
    one = loading.parse(valid(), "c.yaml")
    assert [p.dataset for p in one.protocols] == ["nq_open"]
    assert one.protocol("musique") is None
    several = loading.parse(changed("latency", [valid()["latency"], NAIVE_ON_MUSIQUE]), "c.yaml")
    assert [p.dataset for p in several.protocols] == ["nq_open", "musique"]
    assert several.protocol("musique").trials == 4
    overview = several.overview()
    assert "latency.0 60 requests\nlatency.1 4 requests\n" in overview
    assert loading.parse(changed("latency", None), "c.yaml").protocols == []


PLACE = f"nq_open,{MODEL},naive,k"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"{PLACE},ann,fully,yes",
            "{}:3: label: Input should be 'supported', 'partially_supported' or 'not_supported'",
        ),
        (f"{PLACE},ann,supported,yes,no", "{}:3: None: Extra inputs are not permitted"),
        (f"{PLACE},bob,supported,yes", "{}:3: bob judges the same evidence twice"),
        (
            f"musique,{MODEL},sp_k5,k,ann,supported,yes",
            f"{{}}:3: model '{MODEL}' does not answer data set 'musique' with variant 'sp_k5'",
        ),
    ],
)
def test_peoples_judgements_are_checked_before_anything_runs(tmp_path, line, message):
    path = tmp_path / "people.csv"
    good = f"dataset,model,variant,key,person,label,faithful\n{PLACE},bob,not_supported,no\n"
    path.write_text(good + line + "\n")
    with pytest.raises(
        UserError, match=re.escape(f"c.yaml: human_judgements: {message.format(path)}")
    ):
        loading.parse(changed("human_judgements", str(path)), "c.yaml")
    path.write_text(good)
    assert loading.parse(changed("human_judgements", str(path)), "c.yaml").human_judgements == str(
        path
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: a\nrun: b\n", "c.yaml:2: the key 'run' again"),
        ("- run\n", "c.yaml: must hold keys and values"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path, text, message):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        loading.load(path)


def test_schema_is_the_committed_one_and_describes_every_key(root):
    assert (root / "workflow/schemas/config.schema.json").read_text() == schema.schema(), (
        "run `make schema`"
    )
    for section in (
        Config,
        ModelEntry,
        schema.DatasetEntry,
        schema.VariantEntry,
        schema.LatencySettings,
    ):
        undescribed = [
            k for k, f in section.model_fields.items() if not f.description and k != "generation"
        ]
        assert not undescribed, section


@pytest.mark.parametrize(
    "name",
    [
        "configs/full.yaml",
        "configs/ci/smoke.yaml",
        "configs/papers/paper.yaml",
        "configs/papers/gpu.yaml",
    ],
)
def test_shipped_configurations_are_valid(root, name):
    checked = loading.load(root / name)
    # no study
    assert set(checked.item_names()) == set(registry.names("item")) - {
        "study_retrieval",
        "study_answers",
    }


def test_a_newer_version_is_refused():
    with pytest.raises(UserError, match=r"c\.yaml: version: must be 1, not 7"):
        loading.parse({**valid(), "version": 7}, "c.yaml")
    stated = loading.parse({**valid(), "version": 1}, "c.yaml")
    assert loading.parse(valid(), "c.yaml").version == stated.version == 1
