"""Generation beside the retrieval service is that of this process; a server that dies or hangs ends
it by name.
"""

import pytest

import service_parts
import tiny_models
from ragauge.io.records import SequenceRecord, read_kind
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.service.client import Client, RetrievalError
from retro_parts import DOCUMENTS, EXACT, ExactRetriever, record_of, run_alone, specified, tokens

TEXTS = [EvaluationStretch(f"{n}", n, tuple(tokens(150, 10 + n))) for n in range(2)]
JOB = specified("piperag", 16, "generate")


def made(searcher, chosen=JOB):
    return Pipeline(JointDecoder(tiny_models.tiny_lm()), chosen, searcher)


@pytest.mark.parametrize("kind", ["retro", "piperag"])
def test_served_generation_is_that_of_this_process(kind):
    chosen = specified(kind, task="generate")
    with (
        service_parts.server(ExactRetriever(DOCUMENTS), EXACT) as server,
        Client(server.address) as client,
    ):
        served = [record_of(made(client, chosen), text) for text in TEXTS]
    alone = [record_of(made(ExactRetriever(DOCUMENTS), chosen), text) for text in TEXTS]
    assert [(r.generated, r.neighbours) for r in served] == [
        (r.generated, r.neighbours) for r in alone
    ]


def test_a_lost_server_ends_the_run_which_goes_on_with_another(tmp_path):
    out = tmp_path / "r.jsonl"
    servers = []

    class Lost(ExactRetriever):
        def search(self, queries):
            if len(self.queries) == 8:  # of the second sequence; 6 windows each
                servers[0]._server.stop(None)
            return super().search(queries)

    with service_parts.server(Lost(DOCUMENTS), EXACT) as server, Client(server.address) as client:
        servers.append(server)
        with pytest.raises(RetrievalError, match=server.address):
            run_alone(lambda: made(client), TEXTS, JOB, out)
    assert not out.exists()
    # the first sequence, below a header
    assert len((tmp_path / "r.jsonl.partial").read_text().splitlines()) == 2
    others = ExactRetriever(DOCUMENTS)
    with service_parts.server(others, EXACT) as server, Client(server.address) as client:
        run_alone(lambda: made(client), TEXTS, JOB, out)
    assert len(others.queries) == 6
    whole = run_alone(lambda: made(ExactRetriever(DOCUMENTS)), TEXTS, JOB, tmp_path / "whole.jsonl")
    mine, theirs = (read_kind(path, SequenceRecord) for path in (out, whole))
    assert [(r.key, r.generated, r.neighbours) for r in mine] == [
        (r.key, r.generated, r.neighbours) for r in theirs
    ]
    run_alone(lambda: pytest.fail("nothing is to do"), TEXTS, JOB, out)
