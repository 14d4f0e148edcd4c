"""Records of generation with retrieval: resumed, compared, refused; and what the performance model
predicts.
"""

import json
import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

import service_parts
import tiny_models
from json_lines import last_value, read_lines
from ragauge import registry
from ragauge.cli._main import main
from ragauge.cost.overlap import RETRIEVAL
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.io.records import SequenceRecord, read_kind, read_meta
from ragauge.pipelines import pipeline
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.evaluation import EvaluationStretch, texts
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.performance import GenerationModel
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.retrieval.retriever import About
from ragauge.pipelines.specification import PipelineSpecification
from ragauge.pipelines.windows import Windows
from ragauge.results import comparison
from ragauge.results.pipelines import traces
from retro_parts import (
    DOCUMENTS,
    EXACT,
    ExactRetriever,
    record_of,
    run_alone,
    specified,
    tokens,
    write_chunks,
    write_database,
)
from tables import cases

TEXTS = [
    EvaluationStretch(f"{n}", n, tuple(DOCUMENTS[n][20:60] + tokens(110, 10 + n))) for n in range(3)
]


def made(chosen, searcher=None):
    searcher = searcher or ExactRetriever(DOCUMENTS)
    return Pipeline(JointDecoder(tiny_models.tiny_lm()), chosen, searcher, searcher)


@pytest.mark.parametrize("task", ["perplexity", "generate"])
@pytest.mark.parametrize("kind", registry.names("schedule"))
def test_every_schedule_keeps_a_record(kind, task):
    chosen = specified(kind, 64 if kind == "retro" else 32, task)
    record = record_of(made(chosen), TEXTS[0])
    assert record.status == "ok", record.reason
    windows = 2 if kind == "retro" else 3
    searches = (
        (windows if chosen.pipeline.schedule_class.every_window else 1)
        if chosen.pipeline.queries_index
        else 0
    )
    assert len(record.neighbours) == len(record.nprobe) == searches
    if task == "generate":
        assert (len(record.generated), record.prompt_tokens, record.nll) == (150 - 64, 64, None)
    else:
        assert record.nll is not None
        assert record.scored == 150 - 64
    overlapping = ("prefetch", "neighbours_ahead")
    assert (
        sum(call["seconds"] for call in record.trace if call["stage"] not in overlapping)
        <= record.trials_s[0]
    )


def test_a_sequence_without_a_finite_likelihood_is_recorded_as_failed(
    monkeypatch,
):
    monkeypatch.setattr(pipeline, "token_nll", lambda *_: torch.full((149,), math.nan))
    record = record_of(made(specified("no_retrieval", 64, "perplexity")), TEXTS[0])
    assert (record.status, record.reason) == ("failed", "its likelihood is not a finite number")


def test_a_sequence_at_which_processes_died_is_recorded_as_failed(tmp_path, monkeypatch):
    chosen = specified("no_retrieval")
    out = tmp_path / "x.jsonl"
    fatal = TEXTS[1].key

    def dies():
        steps = pipeline.Pipeline.steps

        def dying(self, text):
            if text.key == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return steps(self, text)

        monkeypatch.setattr(pipeline.Pipeline, "steps", dying)
        run_alone(lambda: made(chosen), TEXTS, chosen, out)

    for _ in range(2):
        child = os.fork()
        if not child:
            try:
                dies()
            finally:
                os._exit(70)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    run_alone(lambda: made(chosen), TEXTS, chosen, out)
    found = read_kind(out, SequenceRecord)
    assert [record.key for record in found if record.status == "failed"] == [fatal]
    [failed] = [record for record in found if record.status == "failed"]
    assert (
        failed.reason
        == "2 processes were killed while they answered it, most likely for want of memory"
    )


def test_hidden_searches_get_a_budget_less_the_time_on_the_network_from_the_first_generation():
    searcher = ExactRetriever(DOCUMENTS)
    generation = made(
        specified("piperag", 32, "generate", nprobe="hide", first_nprobe=32), searcher
    )
    generation.network_s = 0.004
    assert record_of(generation, TEXTS[0]).network_s == 0.004
    assert generation.performance is not None
    first, *ahead = searcher.queries[3:]
    assert (first.nprobe, first.budget_s) == (32, None)
    budgets = [
        generation.performance.budget_s(length, Windows(32, True), 2, 0.004) for length in (64, 96)
    ]
    assert [q.budget_s for q in ahead] == pytest.approx(budgets)


def scored(path, values):
    chosen = specified("random")
    todo = [EvaluationStretch(f"{i}", i, tuple(range(150))) for i in range(len(values))]

    class Given:
        performance = None

        def steps(self, text):
            yield
            nll = values[text.document]
            return SequenceRecord(
                key=text.key, status="ok", document=0, tokens=150, nll=nll, scored=86
            )

    return run_alone(Given, todo, chosen, path)


def test_the_control_decides_by_its_interval(tmp_path, capsys):
    random = scored(tmp_path / "random.jsonl", [3.0, 2.0, 2.5, 2.8, 3.1, 2.7])
    better = scored(tmp_path / "better.jsonl", [2.9, 1.8, 2.4, 2.6, 3.0, 2.6])
    unsure = scored(tmp_path / "unsure.jsonl", [2.9, 2.1, 2.4, 2.9, 3.0, 2.6])
    assert comparison.control(better, random)["passes"] is True
    assert comparison.control(unsure, random)["passes"] is False
    against = ["--random", str(random), "--base", str(unsure)]
    assert main(["score", "--metric", "perplexity", str(better), *against, "--json"]) == 0
    shown = last_value(capsys.readouterr().out)[str(better)]
    assert shown["control"]["difference"] == pytest.approx(-0.8 / 6)
    assert shown["against_base"]["difference"] == pytest.approx(-0.1)
    assert shown["perplexity"] == pytest.approx(12.81, abs=0.01)


def test_latency_is_shown_beside_its_ideal(tmp_path):
    chosen = specified("piperag", 32, "generate", trials=3)
    out = run_alone(lambda: made(chosen), TEXTS, chosen, tmp_path / "g.jsonl")
    found = comparison.summary(out)
    assert found["over_ideal"] >= 0.99
    assert found["ideal_s"] <= found["seconds"] * 1.01
    assert 0 < found["waited_s"] < found["seconds"]
    records = read_kind(out, SequenceRecord)
    assert all(len(record.trials_s) == 3 and record.load_share is not None for record in records)
    assert found["load_share"] == max(record.load_share or 0.0 for record in records)
    with pytest.raises(UserError, match="holds generated text"):
        comparison.difference(out, out)


def test_a_damaged_trace_is_named_by_its_file_and_sequence(tmp_path):
    record = SequenceRecord(
        key="0:a#0", status="ok", document=0, tokens=150, trace=[{"stage": "read"}]
    )
    path = tmp_path / "g.jsonl"
    with pytest.raises(UserError) as error:
        traces(path, [record])
    assert str(error.value).startswith(f"{path}: sequence 0:a#0: ")


def test_timed_trials_take_turns_and_the_answers_are_those_of_pipelines_alone(
    tmp_path, monkeypatch
):
    kinds = {
        "none": specified("no_retrieval", 64, "generate", trials=4),
        "retro": specified("retro", 64, "generate", trials=4),
        "ahead": specified("piperag", 16, "generate", trials=4),
    }
    order = []
    generate = pipeline.Pipeline.generate

    def noted(self, text):
        order.append((text.key, self.settings.schedule))
        return generate(self, text)

    monkeypatch.setattr(pipeline.Pipeline, "generate", noted)
    files = {tmp_path / f"{name}.jsonl": chosen for name, chosen in kinds.items()}

    runs = [
        pipeline.run(lambda chosen=chosen: made(chosen), TEXTS, chosen, out)
        for out, chosen in files.items()
    ]
    pipeline.in_turns(runs)
    schedules = [chosen.pipeline.schedule for chosen in kinds.values()]
    rounds = [tuple(kind for _, kind in order[i : i + 3]) for i in range(0, 45, 3)]
    assert all(sorted(each) == sorted(schedules) for each in rounds)
    assert len(set(rounds)) > 1, "the order changes"
    texts_of_rounds = [{key for key, _ in order[i : i + 3]} for i in range(0, 45, 3)]
    # one generation untimed; the first trial of a text follows the last of the one before
    assert texts_of_rounds == [{text.key} for text in TEXTS for _ in range(5)]
    for out, chosen in files.items():
        alone = run_alone(lambda chosen=chosen: made(chosen), TEXTS, chosen, tmp_path / "a.jsonl")
        mine, theirs = (read_kind(path, SequenceRecord) for path in (out, alone))
        assert [(r.key, r.generated, r.neighbours) for r in mine] == [
            (r.key, r.generated, r.neighbours) for r in theirs
        ]
        assert all(len(r.trials_s) == 4 and r.load_share is not None for r in mine)
        assert (read_meta(out) or {})["specification"]["pipeline"]["schedule"] == (
            chosen.pipeline.schedule
        )
        alone.unlink()


# ---- the performance model


def calls():
    for past in (300, 400, 500):
        yield Call("neighbours", (128, 128), (1, 1), seconds=0.3)
        yield Call("decode", (1,), (past,), steps=10, seconds=10 * (0.02 + 1e-5 * (past + 4.5)))


@pytest.mark.parametrize(("stage", "sign"), [("neighbours", 1), ("neighbours_ahead", -1)])
def test_the_model_finds_the_lines(stage, sign):
    """Neighbours that are read ahead take of the time for searching; others give it theirs."""
    trace = [replace(c, stage=stage) if c.stage == "neighbours" else c for c in calls()]
    model = GenerationModel.fit(trace)
    windows = Windows(32, stale=True)
    assert model.decode(350) == pytest.approx(0.0235)
    assert model.decode.error == pytest.approx(0, abs=1e-9)
    assert model.neighbours(256) == pytest.approx(0.3)
    budget = model.budget_s(100, windows, 2, network_s=0.1)
    assert budget == pytest.approx(
        max(1e-3, sign * 0.3 + 32 * (0.02 + 1e-5 * (100 + 256 + 15.5)) - 0.1)
    )


def test_the_model_knows_how_much_was_read_before():
    found = [Call(RETRIEVAL, (64,), (0,), seconds=0.1) for _ in range(4)]
    read = [
        Call("neighbours", (128,) * count, (1,) * count, seconds=0.15 * count)
        for count in (2, 1, 1)
    ]
    model = GenerationModel.fit([*found, *read, *(c for c in calls() if c.stage == "decode")])
    assert model.fresh == 0.5  # of four windows one read two neighbours, two read one
    decode_s = 32 * (0.02 + 1e-5 * (100 + 256 + 15.5))
    assert model.budget_s(100, Windows(32, stale=True), 2) == pytest.approx(decode_s + 0.15)


# ---- with a database on disk, by the command line


@pytest.mark.parametrize("kind", ["no_retrieval", "retro", "piperag"])
def test_published_scoring_takes_every_label_of_short_texts_too(kind):
    """The 63 labels before the first query are the plain decoder's, the other 86 those of the other
    scoring.
    """
    pipe = made(specified(kind, scoring="published"))
    short = EvaluationStretch("short", -1, TEXTS[0].ids[:12])
    found = [record_of(pipe, text) for text in (TEXTS[0], short)]
    assert [record.scored for record in found] == [149, 11]
    late = record_of(made(specified(kind)), TEXTS[0])
    head = EvaluationStretch("head", -1, TEXTS[0].ids[:64])
    early = record_of(made(specified("no_retrieval", scoring="published")), head)
    assert found[0].nll
    assert late.nll
    assert early.nll
    assert found[0].nll * 149 == pytest.approx(late.nll * 86 + early.nll * 63, rel=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_database(tmp_path_factory.mktemp("pipeline"), num_hidden_layers=1)


def command(folder, out, *options):
    common = f"--database {folder / 'db'} --model {folder / 'model'} --tokens 100 --limit 4".split()
    return main(["piperag", "run", *common, "--threads", "1", "--out", str(out), *options])


def test_held_out_text_takes_each_article_before_any_twice(folder):
    database = Database(folder / "db")
    found = texts(database, 70)
    assert [t.document for t in found[:4]] == [0, 1, 2, 0]
    assert all(len(t.ids) == 70 for t in found)
    assert len({t.key for t in found}) == len(found)
    with pytest.raises(UserError, match="none of its held-out texts has 9000 tokens"):
        texts(database, 9000)


@pytest.mark.parametrize("mode", ["joint", "cross_attention"])
def test_a_mode_is_trained_and_scored_by_the_command_line(folder, tmp_path, mode):
    chunks = Database(folder / "db")
    documents = {}
    for document, passage in (chunks.passage(chunk, 0) for chunk in range(len(chunks))):
        documents.setdefault(document, []).extend(passage)
    tokenizer = chunks.manifest["tokenizer"]
    about = About("exact", tokenizer, "encoder", "l2", len(chunks), 64, 260, 64)
    common = [
        "--model",
        str(folder / "model"),
        "--database",
        str(folder / "db"),
        "--threads",
        "1",
        "--mode",
        mode,
    ]
    recipe = f"--minutes 0.001 --batch 1 --held-out 1 --out {tmp_path}".split()
    with service_parts.server(ExactRetriever(list(documents.values())), about) as server:
        assert main(["piperag", "retrofit", *common, *recipe, "--server", server.address]) == 0
    with safe_open(tmp_path / "adapters.safetensors", "pt") as weights:
        assert weights.metadata()["index_sha256"] == "exact", (
            "with another index it is another training"
        )
        assert weights.metadata()["code"]
    curve = read_lines(tmp_path / "curve.jsonl")
    assert curve[0]["step"] == 0 < curve[-1]["step"]
    trained = ["--mode", mode, "--adapters", str(tmp_path / "adapters.safetensors")]
    assert command(folder, tmp_path / "r.jsonl", "--schedule", "random", *trained) == 0
    assert read_meta(tmp_path / "r.jsonl")["fingerprint"]["mode"] == mode  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "message"),
    cases("""
[--schedule, random, --mode, retro] -> --task: 'perplexity' is meaningless with random weights
[--schedule, retro, --server, '127.0.0.1:1'] -> 127.0.0.1:1
[--schedule, random, --nprobe, many] -> --nprobe: must be a valid integer
[--schedule, random, --cores, 0-x] -> must be a list of cores
[--schedule, random, --adapters, none.safetensors] -> no such file
[--schedule, random, --tokens, '65'] -> --tokens: must be greater than or equal to 66, not '65'
[--schedule, random, --database, /nowhere] -> /nowhere
"""),
)
def test_mistakes_are_told_in_one_line(
    folder,
    tmp_path,
    capsys,
    options,
    message,
):
    assert command(folder, tmp_path / "x.jsonl", *options) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error


def test_chunks_of_another_length_are_refused(folder, tmp_path, capsys):
    """PipeRAG at an interval of 64 would cut neighbours in chunks of 16 tokens to nothing."""

    def refused(code, where):
        message = f"{where}: chunk_tokens: must be 64 where a decoder reads neighbours, got 16"
        return code == 2 and message in capsys.readouterr().err

    write_chunks(folder, "short", str(folder / "model"), chunk_tokens=16)
    short = ["--database", str(folder / "short")]
    out = tmp_path / "x.jsonl"
    assert command(folder, out, "--schedule", "no_retrieval", *short) == 0
    assert refused(command(folder, out, "--schedule", "random", *short), folder / "short")
    retrofit = ["piperag", "retrofit", "--model", str(folder / "model"), "--out", str(tmp_path)]
    assert refused(main([*retrofit, *short, "--server", "127.0.0.1:1"]), folder / "short")
    about = replace(EXACT, tokenizer=Database(folder / "db").manifest["tokenizer"], chunk_tokens=16)
    with service_parts.server(ExactRetriever(DOCUMENTS), about) as served:
        asked = ["--schedule", "retro", "--server", served.address]
        assert refused(command(folder, out, "--overwrite", *asked), served.address)


def test_a_configuration_names_a_running_server(folder, tmp_path, capsys):
    """Its index is the configuration's by name; the time to it is measured, and a dead one is named
    by its address.
    """
    entry = {
        "interval": 32,
        "tokens": 130,
        "limit": 1,
        "threads": 1,
        "task": "generate",
        "nprobe": "hide",
    }
    with service_parts.server(
        ExactRetriever(DOCUMENTS), replace(EXACT, tokenizer=_tokenizer(folder))
    ) as server:
        settings = {
            "run": "x",
            "seed": 3,
            "models": {"tiny": {"source": str(folder / "model")}},
            "databases": {"cities": {"corpus": str(folder / "c.jsonl")}},
            "pipelines": {"piperag": {**entry, "server": [server.address]}},
        }
        (tmp_path / "c.yaml").write_text(json.dumps(settings))
        common = [
            "piperag",
            "run",
            f"--config={tmp_path / 'c.yaml'}",
            "--entry=piperag",
            f"--database={folder / 'db'}",
        ]
        assert main([*common, "--out", str(tmp_path / "p.jsonl")]) == 0
        [record] = read_kind(tmp_path / "p.jsonl", SequenceRecord)
        meta = read_meta(tmp_path / "p.jsonl")
        assert meta["network_s"] == record.network_s
        assert (record.network_s or 0) > 0
        specification = PipelineSpecification.model_validate(meta["specification"])
        assert (specification.model, specification.database, specification.seed) == (
            "tiny",
            "cities",
            3,
        )
        assert specification.index
        assert specification.index.label == "ivf"
        assert specification.pipeline.server == [server.address]
        assert (meta["fingerprint"]["seed"], meta["fingerprint"]["interval"]) == (3, 32)
    capsys.readouterr()
    assert main([*common, "--out", str(tmp_path / "dead.jsonl"), "--deadline", "2"]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert f"retrieval server {server.address}" in line


def _tokenizer(folder):
    return str(Database(folder / "db").manifest["tokenizer"])
