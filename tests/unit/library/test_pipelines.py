"""What a study recommends answers in Python as it did in the study, also where it was copied to."""

import shutil

import pytest
import yaml

import ragauge
from endpoints import served, streams
from json_lines import read_lines
from ragauge.cli._main import main
from study_files import study_arguments
from tiny_models import encoder

TEXTS = {
    "tea.md": "Tea is grown in Assam. It is picked by hand, leaf by leaf. " * 9,
    "coffee.md": "Coffee grows in Kenya. The beans are dried in the sun. " * 9,
    "salt.txt": "Salt comes from Hallein. It is boiled out of brine. " * 9,
}
QUESTIONS = ["Where is tea grown?", "What is dried in the sun?", "From where does salt come?"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Documents, questions and a tiny model, as arguments of a study."""
    folder = tmp_path_factory.mktemp("sources")
    arguments = study_arguments(folder)
    for name, text in TEXTS.items():
        (folder / "texts" / name).write_text(text)
    lines = "".join(f"{question},Assam\n" for question in QUESTIONS)
    (folder / "q.csv").write_text(f"question,answers\n{lines}")
    arguments += ["--passage-tokens", "32", "--overlap-tokens", "8", "--top", "3"]
    return [*arguments, "--encoder", f"path:{encoder(folder / 'encoder')}"]


def recommended(folder, variant):
    """The configuration of one variant of a study, written as the command does."""
    settings = yaml.safe_load((folder / "config.yaml").read_bytes())
    settings["methods"] = {variant: settings["methods"][variant]}
    settings["latency"]["methods"] = [variant]
    settings["models"]["model"]["dtype"] = "float32"
    path = folder / "recommended.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("kind", "variant"), [("bm25", "top_k2"), ("fused", "naive"), ("dense", "superposition_k1")]
)
def test_answers_are_those_of_the_study(sources, tmp_path, kind, variant):
    out = tmp_path / "study"
    assert main([*sources, "--retrieval", kind, "--out", str(out)]) == 0
    path = recommended(out, variant)
    run = ["run", "--config", str(path), "--method", variant, "--dataset", "questions"]
    assert main([*run, "--model", "model", "--threads", "1", "--out", str(out / "r.jsonl")]) == 0
    records = read_lines(out / "r.jsonl")
    copied = tmp_path / "server"
    copied.mkdir()
    for name in ("recommended.yaml", "passages.jsonl", "retrieval.json"):
        shutil.copy(out / name, copied)
    shutil.rmtree(out / "embeddings", ignore_errors=True)
    (out / "questions.jsonl").unlink()
    pipeline = ragauge.Pipeline.load(copied / "recommended.yaml", threads=1)
    for record, question in zip(records, QUESTIONS, strict=True):
        answer = pipeline.answer(question)
        assert (answer.text, list(answer.kept)) == (record["text"], record["kept"])
        assert answer.tokens["documents"] == record["tokens"]["documents"]
        found = pipeline.retrieve(question)
        assert len(found) == 3
        assert {document.title for document in answer.documents} <= {d.title for d in found}


def test_what_is_no_recommendation_is_refused(sources, tmp_path):
    out = tmp_path / "study"
    assert main([*sources, "--out", str(out)]) == 0
    with pytest.raises(ragauge.UserError, match=r"config\.yaml: has 11 variants"):
        ragauge.Pipeline.load(out / "config.yaml")
    path = recommended(out, "naive")
    (out / "passages.jsonl").unlink()
    with pytest.raises(ragauge.UserError, match=r"passages\.jsonl"):
        ragauge.Pipeline.load(path)


def test_a_model_behind_a_server_answers_there(sources, tmp_path, monkeypatch):
    out = tmp_path / "study"
    tokenizer = sources[sources.index("--model") + 1]
    with served([streams("Hallein")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        more = ["--model", "openai:m", "--tokenizer", tokenizer, "--out", str(out)]
        assert main([*sources, *more]) == 0
        settings = yaml.safe_load((out / "config.yaml").read_bytes())
        settings["methods"] = {"top_k1": settings["methods"]["top_k1"]}
        (out / "recommended.yaml").write_text(yaml.safe_dump(settings))
        answer = ragauge.Pipeline.load(out / "recommended.yaml").answer(QUESTIONS[2])
    assert answer.prediction == "Hallein"
    assert [document.title for document in answer.documents] == ["salt"]
    [message] = server.requests[-1]["body"]["messages"]
    assert "Salt comes from Hallein." in message["content"]
    assert QUESTIONS[2] in message["content"]
