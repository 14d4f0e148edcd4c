"""A model can be what a training of the experiment makes."""

import pytest

from ragauge.config import loading
from ragauge.errors import UserError

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


def test_its_source_is_what_the_training_leaves():
    parsed = loading.parse(experiment(), "x")
    assert parsed.models["tuned"].source == "path:results/r/models/cfic"
    # as the catalog says of the model that it is made of
    assert parsed.models["tuned"].template == "chat"
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


def test_it_is_timed_where_the_protocol_names_it():
    """By default what it was made from is timed in its place."""
    protocol = {"methods": ["cfic"], "dataset": "wiki_long"}
    for models, timed in (({}, "smollm2-135m-instruct"), ({"models": ["tuned"]}, "tuned")):
        parsed = loading.parse(experiment(latency=protocol | models), "x")
        assert list(parsed.measured("latency")) == [("wiki_long", timed)]


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


def test_numbers_without_a_point_are_numbers():
    import yaml

    training = yaml.safe_load("{model: llama-2-7b, lr: 1e-5, eps: 1e-8}")
    parsed = loading.parse_training(training, "x")
    assert (parsed.lr, parsed.eps) == (1e-5, 1e-8)


def test_the_data_rest_on_their_own_settings_alone():
    one, other = (
        loading.parse_training({"model": "llama-2-7b", "lr": lr}, "x") for lr in (0.1, 0.2)
    )
    assert one != other
    assert one.data() == other.data()
