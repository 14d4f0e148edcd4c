"""What each job of an experiment reads, depends on and takes."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from plugin_packages import forget
from ragauge.config.code import code_of
from ragauge.config.launch import slurm
from ragauge.config.launch.command_line import retyped
from ragauge.config.launch.slurm import end_left_jobs, left_jobs
from ragauge.config.loading import load, parse
from ragauge.config.plan import contents
from ragauge.config.plan.part import grown
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.io import digest
from tables import rows

MODEL = "smollm2-135m-instruct"
ASSETS = "resources/assets"


def of(**labels):
    """The labels of a job, as Snakemake gives them."""
    return SimpleNamespace(**labels)


@pytest.fixture(scope="module")
def full(root):
    return Plan(load(root / "configs/full.yaml"), cores=8)


def changed(**sections):
    """A small experiment with these sections."""
    return Plan(parse({"run": "r", "models": {MODEL: {}}} | sections, "c.yaml"), cores=4)


def test_a_variant_needs_what_its_method_says(full):
    assert full.answers.encoders(of(variant="dense_k1")) == [f"{ASSETS}/minilm.json"]
    assert full.answers.encoders(of(variant="sliding_bm25")) == []
    assert full.timing.encoders("latency")(of(dataset="wiki_single")) == [f"{ASSETS}/minilm.json"]


@pytest.mark.parametrize(("length", "read"), [("median", ["naive"]), (7, []), (None, [])])
def test_times_at_the_median_length_need_the_answers_of_what_is_timed(length, read):
    latency = {"methods": ["naive"], "dataset": "wiki_single", "answer_tokens": length}
    methods = {"naive": {}, "oracle": {}}
    plan = changed(datasets={"wiki_single": {}}, methods=methods, latency=latency)
    answers = plan.timing.answers("latency")(of(dataset="wiki_single", model=MODEL))
    assert answers == [f"results/r/answers/wiki_single/{MODEL}/{name}.jsonl" for name in read]


def test_a_model_is_fetched_or_trained_and_its_finder_with_it():
    training = {"t": {"model": MODEL}}
    models = {"a": {"source": MODEL}, "b": {"training": "t"}, "c": {"source": MODEL, "finder": "b"}}
    plan = changed(
        models=models, training=training, datasets={"wiki_long": {}}, methods={"cfic": {}}
    )
    assert plan.answers.models(of(model="a")) == [f"{ASSETS}/{MODEL}.json"]
    assert plan.answers.models(of(model="b")) == ["results/r/models/t.json"]
    assert plan.answers.models(of(model="c")) == [
        f"{ASSETS}/{MODEL}.json",
        "results/r/models/t.json",
    ]


def test_answers_depend_on_their_own_settings_alone(full):
    config = full.config
    job = of(dataset="wiki_single", model=MODEL, variant="bm25_k1")

    def settings(**update):
        answers = Plan(config.model_copy(update=update)).answers
        return answers.specification(job), answers.config.limit(job)

    before = settings()
    assert settings(items=["frontier"], latency=None, pipelines={}, judge=None) == before
    others = {name: variant for name, variant in config.methods.items() if name == "bm25_k1"}
    assert settings(methods=others) == before
    variant = config.methods["bm25_k1"].model_copy(update={"limit": 3})
    assert settings(methods=others | {"bm25_k1": variant}) != before
    assert settings(generation=config.generation.model_copy(update={"max_new_tokens": 7})) != before
    assert settings(seed=5) != before


@pytest.mark.parametrize(
    "key", [{"skip": 3}, {"seed": 5}, {"options": {"documents": 10}}, {"sha256": "0" * 64}]
)
def test_questions_are_written_again_where_others_are_asked(key):
    plans = [changed(datasets={"wiki_single": entry}, methods={"naive": {}}) for entry in ({}, key)]
    assert len({str(plan.data.settings(of(dataset="wiki_single"))) for plan in plans}) == 2


def test_files_that_users_bring_are_known_by_their_contents(tmp_path, monkeypatch):
    """Whatever their times are; and a file is read once, until it changes."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    files = [tmp_path / name for name in ("q.jsonl", "text.jsonl", "held.jsonl", "model/x.bin")]
    for file in files:
        file.write_text("before")
    questions, text, held_out, _ = map(str, files)
    sets = {"other": {"corpus": held_out}}
    database = {"corpus": text, "evaluation_sets": sets}
    plan = changed(
        models={MODEL: {}, "own": {"source": f"path:{tmp_path / 'model'}"}},
        datasets={"nq_open": {"data": questions}},
        databases={"d": database},
    )
    asset = next(name for name, source in plan.manifests.items() if "path:" in source)
    name = Path(asset).name.removesuffix(".json")

    def parameters():
        labels = of(dataset="nq_open", asset=name, database="d", evaluation="other")
        return [
            plan.data.settings(labels),
            plan.retrieval.chunk_settings(labels),
            plan.retrieval.evaluation_settings(labels),
            plan.asset_contents(labels),
        ]

    before = parameters()
    with monkeypatch.context() as patched:
        patched.setattr(contents, "file_sha256", None)
        assert parameters() == before, "nothing is read again"
    for place, file in enumerate(files):
        state = file.stat()
        file.write_text("after!")  # as long, and with its former time
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        after = parameters()
        assert [a == b for a, b in zip(before, after, strict=True)] == [
            n != place for n in range(len(files))
        ]
        before = after
    (tmp_path / "home" / contents.CACHE).write_text("[damaged")
    assert parameters() == before
    files[0].unlink()
    assert plan.data.settings(of(dataset="nq_open"))["contents"] == []


def test_questions_are_dealt_to_jobs():
    plan = changed(datasets={"wiki_single": {"jobs": 2}, "wiki_multi": {}}, methods={"naive": {}})
    job = of(dataset="wiki_single", model=MODEL, variant="naive")
    parts = [f"results/r/parts/wiki_single/{MODEL}/naive/{part}-of-2.jsonl" for part in range(2)]
    assert plan.answers.parts(job) == parts
    assert plan.answers.part_option(of(**vars(job), part="1", jobs="2")) == ["--part=1/2"]
    assert plan.answers.part_option(job) == []
    assert plan.answers.labels_of_datasets(several_jobs=True) == "wiki_single"
    assert plan.answers.labels_of_datasets(several_jobs=False) == "wiki_multi"


def test_jobs_on_a_gpu_ask_for_it_and_for_more_memory_when_it_was_not_enough():
    resources = {"mem_mb": 9000, "runtime": 30}
    plan = changed(
        models={
            "big": {"source": MODEL, "device": "cuda", "resources": resources},
            "small": {"source": MODEL},
        }
    )
    assert plan.on_gpu
    assert (plan.answers.gpus(of(model="big")), plan.answers.gpus(of(model="small"))) == (1, 0)
    assert [plan.answers.mem_mb(of(model="big"), attempt) for attempt in (1, 2)] == [9000, 18000]
    assert plan.answers.runtime(of(model="big")) == 30
    assert grown(2000)(of(), attempt=3) == 6000


def test_a_judge_on_this_machine_is_fetched_and_one_behind_an_endpoint_is_not():
    questions = {"datasets": {"wiki_long": {}}, "methods": {"cfic": {}}}
    here = changed(**questions, judge={"methods": ["cfic"], "model": MODEL, "device": "cuda"})
    assert here.judgements.judge(of()) == [f"{ASSETS}/{MODEL}.json"]
    endpoint = changed(**questions, judge={"methods": ["cfic"], "limit": 50})
    assert (endpoint.judgements.judge(of()), endpoint.judgements.options(of())) == (
        [],
        ["--limit=50"],
    )
    assert [tuple(job) for job in endpoint.config.judged()] == [("wiki_long", MODEL, "cfic")]
    faithful = changed(**questions, judge={"methods": ["cfic"], "of": "faithfulness"})
    assert faithful.judgements.options(of(dataset="wiki_long")) == [
        "--of=faithfulness",
        "--examples=results/r/data/wiki_long.jsonl",
    ]


def test_training_does_not_see_what_its_models_are_asked(full):
    assert full.training.evaluation(of(training="cfic")) == ["results/full/data/wiki_long.jsonl"]
    assert full.training.limits(of(training="cfic")) == {"wiki_long": 7}


def test_training_a_larger_model_asks_for_its_weights():
    given = {
        "model": "longalpaca-7b-32k",
        "device": "cuda",
        "processes": 2,
    }
    plan = changed(training={"g": given})
    label = of(training="g")
    weights = 6_738_415_616  # of Llama 2 7B
    assert plan.training.mem_mb(label, attempt=1) == pytest.approx(
        4000 + 2 * 4 * weights / 1e6, abs=1
    )


def test_training_takes_the_whole_processor_or_a_core_a_gpu():
    given = {"model": MODEL}
    trainings = {
        "c": given,
        "one": given | {"threads": 1},
        "g": given | {"device": "cuda", "processes": 2},
    }
    plan = changed(training=trainings)
    cpu = of(training="c")
    gpu = of(training="g")
    assert plan.training.threads(of(training="one")) == 1
    assert plan.training.mem_mb(cpu, attempt=2) == 16000
    assert (plan.training.threads(cpu), plan.training.gpus(cpu), plan.training.node(cpu)) == (
        4,
        0,
        "--exclusive",
    )
    assert (plan.training.threads(gpu), plan.training.gpus(gpu), plan.training.node(gpu)) == (
        2,
        2,
        "",
    )


def test_an_index_is_made_of_the_shards_that_it_is_over(full):
    folder = "results/full/databases/wikipedia/indexes"
    assert full.retrieval.shard_files(full.paths.codes)(
        of(database="wikipedia", index="first_half")
    ) == [f"{folder}/first_half/shards/00000/manifest.json"]
    ivf = of(database="wikipedia", index="ivf")
    assert len(full.retrieval.shard_files(full.paths.codes)(ivf)) == 2
    assert (full.retrieval.train_threads(ivf), full.retrieval.train_node(ivf)) == (1, "")


def test_pipelines_share_adapters_and_exports():
    pipelines = {
        "plain": {"schedule": "retro"},
        "onnx": {"schedule": "retro", "engine": "onnx"},
        "trained": {"schedule": "retro", "engine": "onnx", "retrofit_minutes": 1.5},
        "paper": {"schedule": "retro", "engine": "onnx", "mode": "retro", "task": "generate"},
        "alone": {"schedule": "no_retrieval", "task": "generate"},
    }
    plan = changed(databases={"db": {}}, pipelines=pipelines).pipelines
    exports = {label: plan.export(of(pipeline=label)) for label in pipelines}
    assert exports["plain"] == exports["alone"] == []
    names = {label: path.removeprefix("results/r/onnx/") for label, path in exports.items() if path}
    assert len(set(names.values())) == 3
    trained = f"results/r/retrofit/db/ivf/{MODEL}/joint/1.5/adapters.safetensors"
    assert plan.adapters(of(pipeline="trained")) == trained
    assert trained in plan.export_inputs(of(export=names["trained"]))
    assert f"--adapters={trained}" in plan.export_options(of(export=names["trained"]))
    assert not [o for o in plan.export_options(of(export=names["onnx"])) if "adapters" in o]
    assert names["paper"].startswith("retro/")
    assert plan.index(of(pipeline="alone")) == []
    assert (
        plan.index(of(pipeline="plain"))
        == "results/r/databases/db/indexes/ivf/merged/manifest.json"
    )
    assert (plan.threads(of(pipeline="alone")), plan.threads(of(pipeline="plain"))) == (4, 1)
    assert (plan.node(of(pipeline="alone")), plan.node(of(pipeline="plain"))) == ("--exclusive", "")


def test_pipelines_that_take_turns_are_one_job():
    timed = {"task": "generate", "interleaved": True, "tokens": 128}
    pipelines = {
        "none": {"schedule": "no_retrieval", **timed},
        "retro_{nprobe}": {"schedule": "retro", "nprobe": [1, 8], **timed},
        "alone": {"schedule": "retro", "task": "generate", "tokens": 128},
        "long_{schedule}": {"schedule": ["random", "piperag"], **timed, "tokens": 200},
    }
    plan = changed(databases={"wiki": {}}, pipelines=pipelines)
    assert plan.pipelines.interleaved() == [
        ["none", "retro_1", "retro_8"],
        ["long_random", "long_piperag"],
    ]
    assert plan.pipelines.label_pattern(job=False) == "alone"


def test_a_pipeline_runs_again_where_another_text_is_read():
    sets = {name: {"corpus": "c4-en"} for name in "ab"}
    runs = {name: {"schedule": "retro", "evaluation": name} for name in "ab"}
    plan = changed(databases={"db": {"evaluation_sets": sets}}, pipelines=runs).pipelines
    assert plan.specification(of(pipeline="a")) != plan.specification(of(pipeline="b"))


# --- code ---


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package; that it is one keeps what was parsed of it."""
    folder = tmp_path_factory.mktemp("copy") / digest.PACKAGE
    shutil.copytree(
        digest.ROOT / digest.PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.csv")
    )
    return folder


@pytest.fixture
def change(package, monkeypatch):
    """What changes the text of a module, of which the digests are until the test ends."""
    monkeypatch.setattr(digest, "ROOT", package.parent)
    before = {}

    def changed(module, how):
        path = next(
            one
            for one in (package / f"{module}.py", package / module / "__init__.py")
            if one.is_file()
        )
        before[path] = path.read_text()
        path.write_text(text := how(before[path]))
        assert text != before[path]

    yield changed
    for path, text in before.items():
        path.write_text(text)
    forget()


def codes(plan):
    """The digests of the code behind some jobs, by what they make."""
    answers = {
        "questions": lambda: plan.data.code(of(dataset="wiki_single")),
        "answers": lambda: plan.answers.code(
            of(model="smollm2-135m-instruct", variant="superposition_k1")
        ),
        "latency": lambda: plan.timing.code("latency")(
            of(dataset="wiki_single", model="smollm2-135m-instruct")
        ),
        "pipeline": lambda: plan.pipelines.code(of(pipeline="piperag_64")),
        "timed": lambda: plan.pipelines.code(of(pipeline="retro_timed")),
        "training": lambda: digest.digest(
            "ragauge.training.finetuning", "ragauge.pipelines.database.embed"
        ),
        "item": lambda: plan.items.code("superposition_table_1"),
        "page": lambda: code_of("report.page.page", components=plan.items.metrics()),
    }
    forget()
    return {name: code() for name, code in answers.items()}


def test_results_outlive_a_fix_of_what_cannot_change_them(full, change):
    before = codes(full)
    package = digest.ROOT / digest.PACKAGE
    for path in package.rglob("*.py"):
        if f"\n{digest.WITHOUT_RESULTS}\n" in path.read_text():
            module = path.relative_to(package).with_suffix("")
            change(module, lambda text: f"{text}\nFIXED = True\n")
    change(
        Path("pipelines/settings"),
        lambda text: text.replace('description="', 'description="better: '),
    )
    assert codes(full) == before


@pytest.mark.parametrize(
    ("module", "made_anew", "kept"),
    rows("""
engines/rope, [answers, latency, pipeline], [questions]
engines/backends/torch, [answers, latency], [questions, item, page]
methods/superposition, [answers, latency], [questions, pipeline, item, page]
metrics/f1, [item, page], [questions, answers, latency, pipeline]
report/items/superposition/table_1, [item], [questions, answers, latency, pipeline, page]
pipelines/service/search_queue, [timed], [pipeline, answers]
pipelines/indexes/ivf_pq, [timed, pipeline], [answers, item, page]
pipelines/indexes/hnsw, [], [timed, pipeline]
pipelines/schedules/piperag, [pipeline], [questions, answers, latency, item, page]
"""),
)
def test_results_are_made_anew_with_the_code_behind_them(full, change, module, made_anew, kept):
    before = codes(full)
    change(Path(module), lambda text: f"{text}\nCHANGED = True\n")
    after = codes(full)
    differ = {name for name in before if after[name] != before[name]}
    assert differ.issuperset(made_anew)
    assert differ.isdisjoint(kept)


# --- the beginning of a run ---


def test_values_of_the_command_line_are_what_they_are():
    merged = {
        "run": "r",
        "generation": {"max_new_tokens": "9"},
        "latency": {"methods": ["naive"], "trials": 3},
    }
    given = {"generation": {"max_new_tokens": "9"}}
    assert retyped(merged, given)["generation"] == {"max_new_tokens": 9}
    assert retyped(merged, {}) == merged
    assert retyped(["1", "a"], ["1", "a"]) == [1, "a"]


SQUEUE = """#!/bin/sh
[ -e cancelled ] || printf '7|ragauge_answers|%s\\n8|ragauge_answers|/elsewhere\\n9|other|%s\\n' "$PWD" "$PWD"
"""


def test_jobs_that_a_killed_run_left_in_slurm_are_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert left_jobs() == []  # no run on Slurm in this folder
    (tmp_path / "logs" / "slurm").mkdir(parents=True)
    for name, text in (("squeue", SQUEUE), ("scancel", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    with pytest.raises(UserError, match="do not end: 7"):
        end_left_jobs(patience_s=0)
    (tmp_path / "scancel").write_text('#!/bin/sh\necho "$@" > cancelled\n')
    end_left_jobs()
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_only_methods_that_take_a_finder_have_one():
    models = {"a": {"source": MODEL}, "b": {"source": MODEL, "finder": "a"}}
    methods = {"naive": {}, "cache_clip": {}}
    config = changed(models=models, datasets={"wiki_single": {}}, methods=methods).config
    taken = {
        (job.model, job.variant): config.specification(job).finder is not None
        for job in config.answers()
    }
    assert [place for place, is_taken in taken.items() if is_taken] == [("b", "cache_clip")]
