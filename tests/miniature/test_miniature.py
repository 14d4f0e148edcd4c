"""The miniature leaves out no kind of the papers' plan, its models stand as on their hubs, and its
check can fail.
"""

import json
from pathlib import Path

import pytest
import yaml

from miniature import check, hub, run
from miniature.kinds import kinds, planned
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.config.loading import parse
from ragauge.config.plan.plan import Plan

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = CONFIGS / "papers/paper.yaml"
OVERLAY = CONFIGS / "ci/miniature.yaml"


@pytest.fixture(scope="module", autouse=True)
def corpora(tmp_path_factory):
    """The miniature's texts, where its overlay says."""
    folder = tmp_path_factory.mktemp("texts")
    run.write_local(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def test_the_overlay_leaves_out_no_kind():
    full = kinds(planned(PAPER))
    thinned = kinds(planned(PAPER, OVERLAY))
    assert not full - thinned
    assert len(list(planned(PAPER, OVERLAY).pipelines)) < len(list(planned(PAPER).pipelines)) / 2


def test_a_kind_that_is_left_out_is_found(tmp_path):
    overlay = tmp_path / "overlay.yaml"
    changes = {
        "staleness": {"c4": {"encoder": "minilm"}},
        "pipelines": {"timed_{evaluation}_{schedule}": {"schedule": ["random"]}},
    }
    overlay.write_text(yaml.safe_dump(changes))
    missing = kinds(planned(PAPER)) - kinds(planned(PAPER, overlay))
    assert {kind[0] for kind in missing} == {"staleness", "pipeline", "text"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    hub.write_all(folder / "home", folder / "hub")
    return folder


def test_every_model_of_the_papers_is_fetched_from_the_cache(cache, monkeypatch):
    from ragauge.assets import resolver

    for name, value in run.environment(cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache / "hub"))
    config = planned(PAPER)
    sources = {
        model.source for model in config.models.values() if not (model.training or model.served)
    }
    assert all((resolver.resolve(source) / "config.json").is_file() for source in sources)


def test_a_sentencepiece_model_alone_is_a_tokenizer(cache):
    """Vicuna, LongChat and LongAlpaca ship no tokenizer.json; Llama 2 ships both files, which
    agree.
    """
    found = {}
    for repository in (
        "meta-llama/Llama-2-7b-chat-hf",
        "lmsys/vicuna-7b-v1.5-16k",
        "Yukang/LongAlpaca-7B",
    ):
        found[repository] = load_tokenizer(hub.snapshot(cache / "hub", repository))
    texts = ("[INST] What is the question?", "é\n\nA chat ", "USER: of which ASSISTANT:")
    both, alone, padded = (tokenizer for tokenizer in found.values())
    assert all(
        both(text)["input_ids"] == alone(text)["input_ids"] == padded(text)["input_ids"]
        for text in texts
    )
    assert alone("of")["input_ids"][0] == alone.bos_token_id == 1
    assert len(padded) == 32_001
    assert padded.convert_tokens_to_ids("[PAD]") == 32_000


def small(**changes):
    config = {
        "run": "t",
        "models": {"m": {"source": "smollm2-360m"}},
        "datasets": {
            "nq_open": {},
            "cut": {"dataset": "longbench_qasper", "options": {"max_length": 9}},
        },
        "methods": {"naive": {}},
        "items": ["superposition_table_1", "frontier"],
        "latency": {"methods": ["naive"], "dataset": "nq_open"},
    }
    return parse(config | changes, "t.yaml")


def a_run(folder, status="ok", truncated=0, cell="measured", **row):
    for dataset, cut in (("nq_open", truncated), ("cut", 7)):
        path = folder / f"results/t/answers/{dataset}/m/naive.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"key": "k", "status": status, "reason": "no memory", "truncated": cut})
            + "\n"
        )
    reports = folder / "reports" / "t"
    reports.mkdir(parents=True, exist_ok=True)
    for item in ("superposition_table_1", "frontier"):
        line = f"m,nq_open,naive,{row.get('variant', 'naive')},time,{cell},{row.get('note', '')}"
        (reports / f"{item}.csv").write_text(
            f"model,dataset,method,variant,quantity,status,note\n{line}\n"
        )
    return folder


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": "failed"}, "results/t/answers/nq_open/m/naive.jsonl: no memory"),
        ({"truncated": 3}, "results/t/answers/nq_open/m/naive.jsonl: k: 3 tokens were cut out"),
        (
            {"cell": "could_not_run", "note": "not run"},
            "superposition_table_1: m, nq_open, naive, naive, time: not run",
        ),
        (
            {"note": "latency of the answering run"},
            "frontier: m, nq_open, naive, naive, time: latency of the answering run",
        ),
        (
            {"cell": "could_not_run", "note": "not timed"},
            "frontier: m, nq_open, naive, naive, time: not timed",
        ),
    ],
)
def test_every_kind_of_fault_is_found(tmp_path, fault, said):
    assert not check.faults(small(), a_run(tmp_path))
    assert said in check.faults(small(), a_run(tmp_path, **fault))


def test_the_parts_are_the_papers_items_and_read_all_pipelines_and_trainings():
    whole = planned(PAPER, OVERLAY)
    parts = {part: run.of_part(whole, part) for part in run.PARTS}
    ours = {"frontier", "dataset_shortcuts", "documents_reuse", "length", "load_curve"}
    left = set(whole.item_names()) - {name for part in parts.values() for name in part.item_names()}
    assert {name for name in left if not name.startswith("reuse_")} == ours
    made = {name: check.Run(part, Path(), part=True).made for name, part in parts.items()}
    assert set(Plan(whole).pipelines.files()) <= made["piperag"]
    assert "results/miniature/training/cfic/data/train.jsonl" in made["cfic"]
