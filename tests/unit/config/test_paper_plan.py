"""The papers' plan on two kinds of machines asks for what its jobs take, as far as sizes and data
sheets say.

What a search takes is assumed, 1e8 codes of 64 bytes a second and core. What an endpoint or a hub
takes is not known, and not checked.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

from miniature.kinds import planned
from pipeline_calls import calls
from ragauge.config.plan.plan import Plan
from ragauge.cost import accelerators, shapes, tokens
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import floor_seconds
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.pipelines.retrieval import sizes

PAPERS = Path(__file__).parents[3] / "configs/papers"
CODES_PER_S = 1e8
HALF = Precision("bfloat16")
A100 = accelerators.known()["a100"].rates
SLOWER = 4  # than the floor of the data sheet: launches, and everything between calls


def of(**labels):
    return SimpleNamespace(**labels)


def shape_of(config, label):
    model = config.models[label]
    source = config.training[model.training].model if model.training else model.source
    return shapes.named(source) if source in shapes.names() else None


def answers_s(config, plan, job):
    """The floor of reading a prompt of mean length and writing an answer of the maximum length."""
    shape = shape_of(config, config.models[job.model].finder or job.model)
    kind = plan.data.kind(job.dataset)
    counts = [n for n in (kind.questions, config.limit(job)) if n is not None]
    if shape is None or kind.counts is None:
        return 0.0
    length = tokens.load(kind.counts, vocab=shape.vocab).total
    written = config.max_new_tokens(job.dataset)
    trace = (
        Call("prompt", (length,), (0,), logits=(1,)),
        Call("decode", (1,), (length,), logits=(1,), steps=written),
    )
    room = shapes.with_context(shape, length + written)
    return min(counts) * sum(floor_seconds(call, room, HALF, A100) for call in trace)


@pytest.fixture(scope="module")
def config():
    return planned(PAPERS / "paper.yaml", PAPERS / "servers.yaml")


@pytest.fixture(scope="module")
def plan(config):
    return Plan(config, cores=48)


@pytest.fixture(scope="module")
def expected_s(config, plan):
    """Seconds of each variant's answers and of each pipeline, its searches included."""
    seconds = {"/".join(job): SLOWER * answers_s(config, plan, job) for job in config.answers()}
    for label, entry in config.pipelines.items():
        own = entry.mode_class.own_model
        shape = shapes.named(own) if own else shape_of(config, config.pipeline_model(entry))
        assert shape is not None
        once = sum(floor_seconds(call, shape, HALF, A100) for call in calls(entry))
        seconds[label] = SLOWER * once * (entry.limit or 0) * (entry.trials + 1)
        if entry.queries_index and isinstance(entry.nprobe, int):
            database = config.databases[config.pipeline_database(entry)]
            scanned = (
                sizes.index_vectors(database, entry.index)
                * entry.nprobe
                / database.indexes[entry.index].max_nprobe
            )
            searches = sum(call.stage == "neighbours" for call in calls(entry))
            seconds[label] += (entry.limit or 0) * entry.trials * searches * scanned / CODES_PER_S
    return seconds


def test_no_job_opens_an_index_that_is_larger_than_its_memory(config, plan):
    assert all(entry.has_server_job for entry in config.pipelines.values() if entry.queries_index)
    jobs = [
        (server, plan.servers.mem_mb(of(database=server[0], index=server[1]), 1))
        for server in config.servers()
    ]
    for label, database in config.databases.items():
        places = [(label, index) for index in database.indexes]
        jobs += [
            (place, plan.retrieval.search_mb(of(database=label, index=place[1]), 1))
            for place in places
        ]
        assert {
            plan.retrieval.train_node(of(database=label, index=index)) for _, index in places
        } <= {"--exclusive"}
    for label, entry in config.staleness.items():
        jobs.append(
            ((entry.database, entry.index), plan.retrieval.search_mb(of(staleness=label), 1))
        )
    assert len(jobs) == 8 + 8 + 3
    assert all(sizes.index_mb(config.databases[d], index) < mem_mb for (d, index), mem_mb in jobs)
    assert max(mem_mb for _, mem_mb in jobs) == 4000 + 215_613  # 2,994,624,617 codes of 72 bytes


def test_no_job_takes_longer_than_it_may(config, plan, expected_s):
    for job in config.answers():
        assert expected_s["/".join(job)] / 60 < plan.answers.runtime(of(**job._asdict())), job
    for label in config.pipelines:
        assert expected_s[label] / 60 < plan.pipelines.runtime(of(pipeline=label)), label
    for (database, index), clients in config.servers().items():
        together = sum(expected_s[label] for label in clients)
        assert together / 60 < plan.servers.runtime(of(database=database, index=index)), index


def test_what_cannot_end_in_time_ends_by_itself_or_is_cut_into_shards(config, plan):
    assert plan.retrieval.staleness_runtime(of(staleness="c4")) > config.staleness["c4"].minutes
    size = sizes.size(config.databases["c4"])
    assert size is not None
    # of the rule `embeddings`, even at 50 chunks a second on one core
    assert size.chunks / 256 / 50 / 60 < 4320
    assert plan.training.data_runtime(of(training="cfic")) * 60 >= 25_652 * 3
    assert plan.retrieval.embed_gpus(of(database="c4")) == 1


def test_the_step_of_a_training_keeps_its_documents_on_fewer_gpus(config):
    training = config.training["cfic"]
    for gpus, processes, accumulation in (
        (1, 1, 64),
        (2, 2, 32),
        (3, 2, 32),
        (7, 4, 16),
        (8, 8, 8),
        (16, 8, 8),
    ):
        fewer = training.on_processes(gpus)
        assert (fewer.processes, fewer.accumulation) == (processes, accumulation)


def test_gpus_that_cannot_hold_a_training_are_refused(plan, monkeypatch):
    """Of 6.7 billion parameters each takes 2 bytes on every GPU, and 14 over all of them."""
    made = {"results/paper/models/cfic.json"}
    monkeypatch.setattr(
        "ragauge.config.plan.training.gpu_state", lambda: {"count": 8, "memory_bytes": 80e9}
    )
    plan.training.check_gpus(made, None)
    plan.training.check_gpus(made, 2)
    plan.training.check_gpus(set(), 1)
    with pytest.raises(
        UserError,
        match=r"training.cfic.processes: 1 GPUs are too few; each must hold 108 GB or more",
    ):
        plan.training.check_gpus(made, 1)
