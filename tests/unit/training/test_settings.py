"""A model can be what a training of the experiment makes."""

import json
from dataclasses import replace

import pytest

import ragauge
from ragauge.assets import store
from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.methods.evidence.account import FINE_TUNED, read_account
from ragauge.results.runs import Runs
from ragauge.testing import write_checkpoint

TRAINED = {"training": "cfic", "methods": ["cfic"], "datasets": ["wiki_long"]}


def experiment(**changes):
    return {
        "run": "r",
        "models": {"smollm2-135m-instruct": {}, "tuned": TRAINED},
        "training": {"cfic": {"model": "smollm2-135m-instruct"}},
        "datasets": {"wiki_single": {"limit": 9}, "wiki_long": {"limit": 5}},
        "methods": {"naive": {}, "cfic": {"limit": 3}, "cfic_k1": {"method": "cfic", "top_k": 1}},
        "latency": {"methods": ["naive"], "dataset": "wiki_single"},
    } | changes


@pytest.mark.parametrize(("key", "value"), [("dtype", "bfloat16"), ("processes", 2)])
def test_what_torch_does_not_train_is_refused_before_any_job(key, value):
    entry = {"model": "smollm2-135m-instruct", "engine": "torch", "dtype": "float32", key: value}
    with pytest.raises(UserError, match=rf"x: training.cfic.{key}: .*{value}.* 'deepspeed'"):
        loading.parse(experiment(training={"cfic": entry}), "x")


def test_its_source_is_what_the_training_leaves():
    parsed = loading.parse(experiment(), "x")
    assert parsed.models["tuned"].source == "path:results/r/models/cfic"
    # as the catalog says of the model that it is made of
    assert parsed.trained_defaults("tuned").wrapping["template"] == "chat"
    assert [job for job in parsed.answers() if job.model == "tuned"] == [
        ("wiki_long", "tuned", "cfic")
    ]
    assert list(parsed.measured("latency")) == [("wiki_single", "smollm2-135m-instruct")]
    # as the workflow hands it on
    assert loading.parse(parsed.model_dump(exclude_none=True), "x") == parsed


def test_what_it_is_asked_is_kept_out_of_training():
    assert loading.parse(experiment(), "x").evaluation("cfic") == {"wiki_long": 3}
    everything = experiment(models={"tuned": {"training": "cfic"}}, latency=None)
    assert loading.parse(everything, "x").evaluation("cfic") == {"wiki_single": 9, "wiki_long": 5}
    unbound = everything | {"datasets": {"wiki_long": {}}}
    assert loading.parse(unbound, "x").evaluation("cfic") == {"wiki_long": None}


FOUND = {
    "smollm2-135m-instruct": {},
    "tuned": {"training": "cfic", "methods": []},
    "found": {
        "source": "smollm2-135m-instruct",
        "finder": "tuned",
        "datasets": ["wiki_long"],
        "methods": ["cfic"],
    },
}


def test_it_can_find_the_evidence_for_another_model():
    parsed = loading.parse(experiment(models=FOUND), "x")
    # kept out of training, as if it were asked itself
    assert parsed.evaluation("cfic") == {"wiki_long": 3}
    assert parsed.trainings("found") == ["cfic"]
    assert [job for job in parsed.answers() if job.model == "tuned"] == []
    assert list(parsed.measured("latency")) == [("wiki_single", "smollm2-135m-instruct")]
    assert loading.parse(parsed.model_dump(exclude_none=True), "x") == parsed


@pytest.mark.parametrize(("methods", "timed"), [(["naive"], True), (["naive", "cfic"], False)])
def test_a_model_with_a_finder_is_timed_with_methods_that_do_not_need_it(methods, timed):
    protocol = {"methods": methods, "dataset": "wiki_long"}
    pairs = loading.parse(experiment(models=FOUND, latency=protocol), "x").measured("latency")
    assert (("wiki_long", "found") in pairs) == timed


def models(**entry):
    return {"models": FOUND | {"a": entry}}


def timed(protocol, method, dataset, model):
    return {protocol: {"methods": [method], "dataset": dataset, "models": [model]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (timed("latency", "cfic", "wiki_long", "tunde"), "latency.models: .*'tunde'; did"),
        (timed("latency", "naive", "wiki_single", "tuned"), "latency.models: 'tuned' .*'wiki_sing"),
        (
            timed("stream", "cfic", "wiki_long", "found") | {"models": FOUND},
            "stream.models: 'found' .*finder",
        ),
        (models(source="x", finder="tunde"), "models.a.finder: .*'tunde'; did"),
        (models(source="x", finder="found"), "models.a.finder: found .*finder"),
        (models(training="cfc"), "models.a.training: .*'cfc'; did you mean"),
        (models(training="cfic", source="x"), "models.a: .*training"),
        (models(training="cfic", methods=["cfik"]), "models.a.methods: .*'cfik'"),
        ({"training": {"cfic": {}}}, "training.cfic.model: is missing"),
        ({"training": {"cfic": {"model": "llama-2-7b", "writer": "w"}}}, "cfic.writer: .*'w'"),
        ({"training": {"cfic": {"model": "llama-2-7b", "corpora": ["x"]}}}, "cfic.corpora: .*'x'"),
    ],
)
def test_mistakes_are_named_with_their_place(changes, message):
    with pytest.raises(UserError, match=message):
        loading.parse(experiment(**({"latency": None} | changes)), "x")


# ---- what was trained is what is asked


def trained_with(variants, **training):
    """An experiment in which the tuned model answers, and finds for another."""
    found = FOUND | {"tuned": {"training": "cfic", "datasets": ["wiki_long"]}}
    found["found"] = {k: v for k, v in FOUND["found"].items() if k != "methods"}
    sections = {"models": found, "methods": variants, "latency": None}
    sections["training"] = {"cfic": {"model": "smollm2-135m-instruct", **training}}
    return experiment(**sections)


def options_of(parsed):
    return {
        (job.model, job.variant): [parsed.specification(job).options[k] for k in ASKED]
        for job in parsed.answers()
    }


ASKED = ("request", "sentences")
VARIANTS = {"cfic": {}, "stated": {"method": "cfic", "request": "copy"}, "free_extraction": {}}


@pytest.mark.parametrize("splitter", ["sentencex", "punkt"])
def test_a_configured_training_decides_what_its_model_is_asked(splitter):
    parsed = loading.parse(trained_with(VARIANTS, request="copy", sentences=splitter), "x")
    options = options_of(parsed)
    for variant in VARIANTS:
        assert options["tuned", variant] == ["copy", splitter]
        assert options["found", variant] == ["copy", splitter]
    assert options["smollm2-135m-instruct", "cfic"] == ["paper", "sentencex"]
    handed_on = loading.parse(parsed.model_dump(exclude_none=True), "x")
    assert options_of(handed_on) == options


@pytest.mark.parametrize(
    ("training", "variant", "facts"),
    [
        ({"request": "copy"}, {"request": "paper"}, ("paper", "copy")),
        ({}, {"request": "copy"}, ("copy", "paper")),
        ({"sentences": "punkt"}, {"sentences": "sentencex"}, ("sentencex", "punkt")),
        ({}, {"sentences": "punkt"}, ("punkt", "sentencex")),
    ],
)
def test_a_variant_that_contradicts_the_training_is_refused(training, variant, facts):
    [key] = variant
    given = trained_with({"other": {"method": "cfic", **variant}}, **training)
    with pytest.raises(UserError) as error:
        loading.parse(given, "x.yaml")
    stated, trained = facts
    places = ("x.yaml", "methods.other", "models.tuned", key, "training.cfic")
    for fact in (*places, repr(stated), repr(trained), *facts):
        assert fact in str(error.value)
    assert "\n" not in str(error.value)
    # a round trip through a file does not lose that it was stated
    del given["models"]["tuned"], given["models"]["found"]
    handed_on = loading.parse(given, "x").model_dump(exclude_none=True)
    assert handed_on["methods"]["other"][key] == stated


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        ({"template": "alpaca"}, "'alpaca'"),
        ({"template_arguments": {"enable_thinking": False}}, "enable_thinking"),
        ({"template_date": "2025-01-31"}, "2025-01-31"),
    ],
)
def test_a_model_that_contradicts_its_trainings_template_is_refused(entry, fact):
    models = {"tuned": TRAINED | entry}
    [key] = entry
    with pytest.raises(UserError, match=rf"models.tuned: {key}: .*{fact}.*training.cfic"):
        loading.parse(experiment(models=models, latency=None), "x")
    del models["tuned"]["training"]
    models["tuned"]["source"] = "smollm2-135m-instruct"
    assert loading.parse(experiment(models=models, latency=None), "x")


def write_trained(folder, manifest=True):
    """A model, and next to it the account of its training."""
    write_checkpoint(folder)
    if manifest:
        store.write_manifest(folder, {"source": f"{FINE_TUNED}another"})
    path = folder.with_name(f"{folder.name}.json")
    path.write_text(json.dumps({"template": "chat", "settings": {"request": "copy"}}))
    return path


def write_question(folder):
    """A question about one document, in the format of `wiki_long`."""
    text = "The tower is old. It was built in 1821. Nobody knows why it leans. " * 9
    line = {"id": "q", "question": "When?", "title": "Tower", "context": text, "answers": ["1821"]}
    (folder / "d.jsonl").write_text(json.dumps(line) + "\n")
    return folder / "d.jsonl"


def answered(folder, *options):
    """The exit code of an answer by CFIC."""
    given = ["run", "--dataset=wiki_long", f"--data={write_question(folder)}", "--threads=1"]
    given += ["--dtype=float32", "--max-new-tokens=4", "--overwrite", *options]
    return main([*given, "--out", str(folder / "out.jsonl")])


@pytest.mark.parametrize("method", ["cfic", "free_extraction"])
def test_an_account_decides_what_its_model_is_asked(method, tmp_path, capsys):
    path = write_trained(tmp_path / "model")
    given = [f"--model=path:{tmp_path}/model", f"--method={method}"]
    assert answered(tmp_path, *given) == 0
    [record] = records.read(tmp_path / "out.jsonl")
    assert record.request.startswith("Read the document below.")
    meta = records.read_meta(tmp_path / "out.jsonl")
    assert meta["specification"]["options"]["request"] == "copy"
    assert answered(tmp_path, *given, "--set=request=copy") == 0
    capsys.readouterr()
    for contradiction in ("--set=request=paper", "--template=plain"):
        assert answered(tmp_path, *given, contradiction) == 2
        error = capsys.readouterr().err
        value = contradiction.rpartition("=")[2]
        for fact in (repr(value), str(path), "'copy'" if value == "paper" else "'chat'"):
            assert fact in error
        assert error.count("\n") == 1
    measured = ["time", f"--methods={method}", *given[:1], "--dataset=wiki_long", "--trials=1"]
    measured += [f"--data={write_question(tmp_path)}", "--set=request=paper"]
    assert main([*measured, "--out", str(tmp_path / "times.json")]) == 2
    assert f"{path} says" in capsys.readouterr().err


def test_an_account_decides_for_a_finder_and_in_the_library(tmp_path):
    write_trained(tmp_path / "finder")
    write_checkpoint(tmp_path / "reader")
    given = [f"--model=path:{tmp_path}/reader", f"--finder=path:{tmp_path}/finder"]
    assert answered(tmp_path, *given, "--method=cfic") == 0
    [record] = records.read(tmp_path / "out.jsonl")
    assert record.request.startswith("Read the document below.")
    assert answered(tmp_path, *given, "--method=cfic", "--set=request=paper") == 2
    model = ragauge.load_model(tmp_path / "finder", dtype="float32", device="cpu", threads=1)
    assert ragauge.method("cfic").on(model).request == "copy"
    with pytest.raises(UserError, match=r"finder.json.*'copy'.*paper, copy"):
        ragauge.method("cfic", request="paper").on(model)
    reader = ragauge.load_model(tmp_path / "reader", dtype="float32", device="cpu", threads=1)
    assert ragauge.method("cfic").on(reader).request == "paper"


def test_a_trained_model_without_its_account_is_refused(tmp_path):
    path = write_trained(tmp_path / "model")
    for content in (None, "{", json.dumps({"settings": {"request": "new"}}), "5"):
        path.unlink() if content is None else path.write_text(content)
        with pytest.raises(UserError, match=r"model.json: cannot be read"):
            read_account(f"path:{tmp_path}/model")
    path = write_trained(tmp_path / "other", manifest=False)
    assert read_account(str(tmp_path / "other")).options == {"request": "copy"}
    (tmp_path / "third.json").write_text(path.read_text())  # without a folder
    assert read_account(str(tmp_path / "third")).options == {}
    path.write_text("5")  # of another program
    assert read_account(str(tmp_path / "other")).options == {}


def test_tables_have_the_rows_of_a_model_that_was_trained_with_another_request(tmp_path):
    parsed = loading.parse(trained_with(VARIANTS, request="copy"), "x")
    known = {v.model: v for v in Runs(tmp_path, parsed).variants if v.name == "cfic"}
    for model, request in (("tuned", "copy"), ("smollm2-135m-instruct", "paper")):
        options = {**known[model].options, "request": request}
        assert replace(known[model], options=options).is_default("cfic")
        options["request"] = "paper" if request == "copy" else "copy"
        assert not replace(known[model], options=options).is_default("cfic")
