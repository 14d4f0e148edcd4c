"""The papers' plan asks for what its jobs take, as far as sizes say."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from miniature.kinds import planned
from ragauge.config.plan.plan import Plan
from ragauge.pipelines.retrieval import sizes

PAPERS = Path(__file__).parents[3] / "configs/papers"


def of(**labels):
    return SimpleNamespace(**labels)


@pytest.fixture(scope="module")
def config():
    return planned(PAPERS / "paper.yaml", PAPERS / "servers.yaml")


@pytest.fixture(scope="module")
def plan(config):
    return Plan(config, cores=48)


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
