"""What a study prints and writes at its end, on invented records."""

import json
import random

import pytest
import yaml

from ragauge.config import loading
from ragauge.config.launch.files import COMMAND
from ragauge.config.plan.part import RunPaths
from ragauge.study import recommendation, writing
from synthetic_run import MODEL, write_variant

NAME = "s"
SHARES = {"closed_book": 0.0, "naive": 0.8, "top_k1": 0.3, "top_k2": 0.8, "top_k5": 0.85}
SECONDS = {"closed_book": 0.1, "naive": 5.0, "top_k1": 0.5, "top_k2": 0.9, "top_k5": 2.0}


@pytest.fixture
def out(tmp_path):
    """The folder of a study, without records."""
    data = tmp_path / writing.DATA
    data.touch()
    source = {"source": MODEL}
    settings = writing.configuration(NAME, source, data, methods=list(SHARES), retrieval=False)
    (tmp_path / writing.CONFIG).write_text(yaml.safe_dump(settings))
    settings["models"][MODEL]["dtype"] = "bfloat16"
    written = tmp_path / RunPaths(NAME).settings
    written.parent.mkdir(parents=True)
    written.write_text(yaml.safe_dump(settings))
    how = {"kind": "bm25", "chosen": "bm25", "encoder": "minilm", "reranker": None, "top": 10}
    (tmp_path / writing.RETRIEVAL).write_text(json.dumps({"retrieval": how, "questions": []}))
    return tmp_path


def write(out, questions, names=tuple(SHARES)):
    rng = random.Random(0)
    for name in names:
        method, _, top = name.partition("_k")
        path = write_variant(
            out / "results" / NAME,
            name,
            method,
            [rng.random() < SHARES[name] for _ in range(questions)],
            params={"top_k": int(top)} if top else {},
            dataset=writing.DATASET,
            online_s=SECONDS[name],
            offline_s=0.0,
        )
        meta = json.loads(path.with_suffix(".meta.json").read_text())
        meta["specification"]["dataset"] = "study"
        path.with_suffix(".meta.json").write_text(json.dumps(meta))


def test_the_terminal_names_the_ties_and_the_file_is_of_the_variant(out, capsys):
    write(out, 60)
    recommendation.print_recommended(out, NAME)
    printed = capsys.readouterr().out
    assert printed.startswith("recommended: top_k2: contains an answer 0.")
    assert "answering run: 0.9 s" in printed
    ties = printed.partition("statistically tied: ")[2].partition("\n")[0]
    assert "top_k5" in ties
    assert "naive" in ties
    assert "top_k1" not in ties
    assert "PROVISIONAL" not in printed
    config = loading.load(out / recommendation.RECOMMENDED)
    assert list(config.methods) == ["top_k2"]
    assert config.models[MODEL].dtype == "bfloat16"


def test_the_page_of_a_run_that_was_ended_leaves_the_rest_to_be_done(out):
    """Without the provenance, which the workflow makes of all records."""
    write(out, 12, ("closed_book", "naive"))
    provenance = out / RunPaths(NAME).provenance
    provenance.parent.mkdir(parents=True)
    provenance.write_text("{}")
    (out / COMMAND).write_text("python -m of-a-study")
    recommendation.render_finished(out, NAME)
    assert not provenance.exists()
    page = (out / RunPaths(NAME).page).read_text(encoding="utf-8")
    assert "<code>python -m of-a-study FILE</code>" in page
    assert "first passage" in page


def test_without_an_answer_nothing_is_recommended(out, capsys):
    recommendation.print_recommended(out, NAME)
    assert capsys.readouterr().out.startswith("PROVISIONAL, nothing is recommended: ")
    assert not (out / recommendation.RECOMMENDED).exists()
