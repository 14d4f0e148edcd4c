"""Generation beside the retrieval service is that of this process; a server that dies or hangs ends
it by name.
"""

import pytest

import service_parts
import tiny_models
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.service.client import Client
from retro_parts import DOCUMENTS, EXACT, ExactRetriever, record_of, specified, tokens

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
