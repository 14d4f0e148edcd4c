"""What the workflow makes for each table and figure, and that each shows the same from that alone."""

import random
import shutil
from pathlib import Path

import pytest

import synthetic_cfic
import synthetic_piperag
import synthetic_run
from ragauge import registry
from ragauge.config.loading import load
from ragauge.config.plan.plan import Plan
from ragauge.config.reads import (
    ANY,
    COMPARED,
    SMALLEST,
    Reads,
    VariantJob,
    defaults,
    every,
    others,
    timed,
)
from ragauge.config.schema import JudgeSettings
from ragauge.methods.base import making
from ragauge.results.runs import Runs

MODEL = "smollm2-135m-instruct"
TRAINED = "smollm2-cfic"
ELSEWHERE = {"length", "study_retrieval"}  # the full experiment has neither RULER nor a study


@pytest.fixture(scope="module")
def config(root):
    """All items on a small model."""
    return load(root / "configs/full.yaml")


@pytest.fixture(scope="module")
def plan(config):
    return Plan(config)


def test_judgements_are_read_where_a_judge_is_named(config):
    judged = Plan(config.model_copy(update={"judge": JudgeSettings(methods=["cfic"])}))
    inputs = {item: judged.items.inputs(item) for item in registry.names("item")}
    read = [path for item in inputs.values() for path in item.get("judgements", [])]
    assert set(read) == {
        f"results/full/judgements/wiki_long/{model}/cfic.jsonl" for model in (MODEL, TRAINED)
    }
    assert [item for item, files in inputs.items() if "judgements" in files] == [
        "cfic_table_7",
        "study_answers",
    ]


# --- an item shows the same from what it reads alone ---


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """Invented results of the full experiment."""
    folder = tmp_path_factory.mktemp("finished")
    draw = random.Random(0)
    for job in config.answers():
        entry = config.methods[job.variant]
        params = making.changed_options(entry.instance)
        right = [draw.random() < 0.5 for _ in range(4)]
        if job.dataset == "wiki_long":
            synthetic_cfic.write(
                folder, job.variant, entry.method, right, model=job.model, **params
            )
        else:
            synthetic_run.write_variant(
                folder,
                job.variant,
                entry.method,
                right,
                params=params,
                dataset=job.dataset,
                model=job.model,
            )
    for dataset in config.datasets:
        synthetic_cfic.write_documents(folder, dataset, 4)
    for protocol in config.protocols:
        stages = {
            name: {"query": 0.1, "skip": draw.random(), "prompt": 0.2} for name in protocol.methods
        }
        synthetic_cfic.write_latency(folder, stages, dataset=protocol.dataset)
    if config.stream:
        ends = dict.fromkeys(config.stream.methods, (1.0, 0.5))
        synthetic_run.write_stream(folder, ends, config.stream.dataset)
    if config.load:
        synthetic_run.write_load(
            folder, {name: [0.1, 0.4] for name in config.load.methods}, config.load.dataset
        )
    for label, pipeline in config.pipelines.items():
        options = {
            k: v
            for k, v in pipeline.model_dump(exclude_unset=True).items()
            if k not in ("schedule", "limit")
        }
        synthetic_piperag.write(
            folder, label, pipeline.schedule, [2 + draw.random() for _ in range(3)], **options
        )
    for index in config.databases["wikipedia"].indexes:
        synthetic_piperag.write_recall(folder, index, vectors=1000 if index == "ivf" else 500)
    synthetic_piperag.write_staleness(folder, [[1.0, 0.8], [0.9, 0.7]])
    return folder


@pytest.mark.parametrize("item", sorted({*registry.names("item")} - ELSEWHERE))
def test_an_item_shows_the_same_from_what_it_reads_alone(plan, config, finished, tmp_path, item):
    for path in [path for paths in plan.items.inputs(item).values() for path in paths]:
        made = Path(path).relative_to(plan.paths.results)
        for sibling in (finished / made).parent.glob(f"{made.stem}.*"):
            target = tmp_path / sibling.relative_to(finished)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(sibling, target)
    shutil.copytree(finished / "data", tmp_path / "data")  # comes with the answers
    module = registry.module("item", item)
    whole, alone = (module.table(Runs(folder, config)) for folder in (finished, tmp_path))
    assert whole["measured"].notna().any()
    assert alone.to_csv(index=False) == whole.to_csv(index=False)


# --- choosing ---


def job_of(variant, method="superposition", changed=(), **options):
    return VariantJob(
        "nq",
        "tiny",
        variant,
        method,
        {"top_k": 1, "saliency": "bayesian"} | options,
        changed,
        "single_hop",
    )


def names(reads, *candidates):
    return [one.variant for one in reads.select(candidates)]


K1 = job_of("k1")
K2 = job_of("k2", changed=("top_k",), top_k=2)
QUERY = job_of("query", changed=("saliency",), saliency="query")
NAIVE = job_of("naive", "naive")


@pytest.mark.parametrize(
    ("answers", "chosen"),
    [
        (every(), ["k2", "k1", "query", "naive"]),
        (every("naive"), ["naive"]),
        (others("naive"), ["k2", "k1", "query"]),
        (timed(), []),
        (defaults("superposition"), ["k1"]),
        (defaults("superposition", top_k=ANY), ["k2", "k1"]),
        (defaults("superposition", top_k=SMALLEST), ["k1"]),
        (
            defaults("superposition", top_k=COMPARED, saliency=("bayesian", "query")),
            ["k1", "query"],
        ),
        (defaults("superposition", top_k=2), ["k2"]),
    ],
)
def test_variants_are_chosen_by_method_and_options(answers, chosen):
    assert names(Reads(answers=[answers]), K2, K1, QUERY, NAIVE) == chosen


def test_where_nothing_can_be_compared_the_smallest_is_read():
    compared = Reads(answers=[defaults("superposition", top_k=COMPARED)])
    assert names(compared, K2, job_of("k4", changed=("top_k",), top_k=4)) == ["k2"]
    assert names(compared, NAIVE) == []
    # once, though twice chosen
    assert names(Reads(answers=[every(), every("naive")]), K1, NAIVE) == ["k1", "naive"]


@pytest.mark.parametrize(
    ("datasets", "kinds"),
    [
        ("single_hop", ["single_hop"]),
        ("short", ["single_hop", "multi_hop"]),
        ("long", ["long"]),
        ("any", ["single_hop", "multi_hop", "long"]),
    ],
)
def test_answers_are_read_of_the_data_sets_of_a_kind(datasets, kinds):
    candidates = [
        VariantJob(kind, "tiny", "naive", "naive", {}, (), kind)
        for kind in ("single_hop", "multi_hop", "long")
    ]
    assert [
        one.kind for one in Reads(answers=[every()], datasets=datasets).select(candidates)
    ] == kinds


def test_models_that_are_fine_tuned_here_are_left_out_where_an_item_reads_none():
    mine = VariantJob("nq", "mine", "naive", "naive", {}, (), "single_hop", trained=True)
    assert names(Reads(answers=[every()], trained=False), mine, NAIVE) == ["naive"]
