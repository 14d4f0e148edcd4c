"""Runs: whole records, failures that do not end a run, kills that leave no trace, and a finished
run left alone.
"""

import hashlib
import re
import shutil
from dataclasses import asdict, replace
from typing import cast

import pytest
import torch
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from json_lines import read_lines, write_lines
from ragauge.cli._main import main
from ragauge.config.model import ModelEntry
from ragauge.cost.trace import Call, online, seconds
from ragauge.datasets.base import loader
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.specifications import FinderFacts
from ragauge.measure import answering, concurrency, engines, inputs, runner
from ragauge.methods.base import making
from ragauge.methods.prompts import corpus_spacing
from ragauge.testing import write_questions

NEW_TOKENS = 5
QUESTIONS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_questions(tmp_path_factory.mktemp("data") / "nq.jsonl", QUESTIONS)


@pytest.fixture(scope="module")
def lm(model):
    return load_lm(str(model), threads=1)


def arguments(model, data, method="superposition", *more):
    return [
        *(
            "run",
            "--method",
            method,
            "--dataset",
            "nq_open",
            "--data",
            str(data),
            "--model",
            str(model),
        ),
        *("--threads", "1", "--max-new-tokens", str(NEW_TOKENS), *more),
    ]


def setting_of(model, data, method="superposition", **options):
    questions = inputs.QuestionSource("nq_open", {"seed": 0}, official=data)
    made = making.make(method, **options)
    return inputs.specification(
        made, questions, ModelEntry(source=str(model), dtype="float32"), NEW_TOKENS
    )


def examples_of(data):
    return inputs.QuestionSource("nq_open", {"seed": 0}, official=data).examples()


def untimed(record):
    """All of a record but what the clock said."""
    left = record.model_dump(exclude={"offline_s", "online_s", "first_token_s"})
    left["trace"] = [{k: v for k, v in call.items() if k != "seconds"} for call in left["trace"]]
    return left


def contents(folder):
    """Name -> (time of the last change, hash) of every file."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {
        p.name: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest()) for p in files
    }


# ---- records


@pytest.mark.parametrize(
    "name", ["naive", "bm25", "superposition", "prompt_cache", "oracle", "closed_book"]
)
def test_a_record_is_complete(name, model, data, tmp_path):
    out = tmp_path / "x.jsonl"
    assert main([*arguments(model, data, name), "--out", str(out)]) == 0
    found = records.read(out)
    examples = examples_of(data)
    assert [(r.key, r.question, r.answers) for r in found] == [
        (e.key, e.question, list(e.answers)) for e in examples
    ]
    for record, example in zip(found, examples, strict=True):
        assert (record.status, record.reason, record.documents) == ("ok", None, 4)
        assert record.gold == list(example.gold)
        assert len(record.tokens["documents"]) == 4
        assert 1 <= record.tokens["generated"] <= NEW_TOKENS
        assert record.prediction == record.text.split("\n")[0]
        trace = [Call.from_json(call) for call in record.trace]
        assert record.online_s == pytest.approx(seconds(online(trace)))
        assert record.offline_s == pytest.approx(seconds(trace) - seconds(online(trace)))
        assert record.first_token_s > 0
        assert record.cache_bytes > 0


def test_the_prediction_is_the_answer_of_the_method(model, data, lm):
    setting = setting_of(model, data, top_k=2)
    example = examples_of(data)[0]
    method = making.make("superposition", top_k=2)
    prompt = answering.prompt_of(example, setting, lm.tokenizer)
    answer = method.answer(lm, method.prepare(lm, prompt), prompt, answering.limits(setting))
    record = answering.ask(lm, method, example, setting)
    assert record.text == lm.tokenizer.decode(answer.ids, skip_special_tokens=True)
    assert (record.kept, record.saliency) == (list(answer.kept), list(answer.saliency))
    assert record.prompt_sha256 == prompt.sha256


@pytest.mark.parametrize(("template", "prediction"), [("chat", "an answer"), ("plain", "")])
def test_an_answer_in_a_chat_is_the_first_line_with_text(
    template, prediction, model, data, lm, monkeypatch
):
    monkeypatch.setattr(type(lm.tokenizer), "decode", lambda *_, **__: "\n \nan answer\nmore")
    stated = setting_of(model, data, "naive").model_copy(update={"template": template})
    record = answering.ask(lm, making.make("naive"), examples_of(data)[0], stated)
    assert record.prediction == prediction


@pytest.mark.parametrize(
    ("name", "options", "is_whole"),
    [
        ("ruler", {"task": "needle_multivalue"}, True),
        ("ruler", {"task": "common_words", "several_lines": False}, False),
        ("ruler", {"task": "needle_single"}, False),
        ("longbench_v2", {}, True),
        ("nq_open", {}, False),
    ],
)
def test_a_list_is_answered_in_several_lines(name, options, is_whole, model, data, lm, monkeypatch):
    """The engine generates beyond a line end, and all of the text is the prediction."""
    monkeypatch.setattr(type(lm.tokenizer), "decode", lambda *_, **__: "are:\n1. one\n2. two")
    dataset = {"dataset": name, "dataset_options": asdict(loader.make(name, **options))}
    stated = setting_of(model, data, "naive").model_copy(update=dataset)
    record = answering.ask(lm, making.make("naive"), examples_of(data)[0], stated)
    assert record.prediction == ("are:\n1. one\n2. two" if is_whole else "are:")
    assert (record.tokens["generated"] > 1) == is_whole


def test_a_record_counts_quoted_control_tokens(model, data, lm):
    example, *_ = examples_of(data)
    first, *others = example.documents
    quoting = replace(
        example, documents=(replace(first, text=f"{first.text} <|end|><|user|>"), *others)
    )
    setting = setting_of(model, data, "naive")
    method = making.make("naive")
    assert [
        answering.ask(lm, method, one, setting).control_tokens for one in (example, quoting)
    ] == [
        0,
        2,
    ]


def test_how_a_chat_template_is_rendered_is_part_of_the_specification(
    model, data, tmp_path, capsys
):
    out = tmp_path / "x.jsonl"
    hashes = []
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").write_text(
        "<|user|>{{ messages[0]['content'] }}<|end|>{% if plain %}-{% endif %}{{ strftime_now('%d') }}<|assistant|>"
    )
    for options, stated in (
        ([], ({}, "2024-07-26")),
        (["--template-arguments", "{plain: true}"], ({"plain": True}, "2024-07-26")),
        (["--template-date", "2025-01-31"], ({}, "2025-01-31")),
    ):
        assert (
            main(
                [
                    *arguments(tmp_path / "m", data, "naive", *options),
                    "--overwrite",
                    "--out",
                    str(out),
                ]
            )
            == 0
        )
        specification = (records.read_meta(out) or {})["specification"]
        assert (specification["template_arguments"], specification["template_date"]) == stated
        hashes.append(records.read(out)[0].prompt_sha256)
    assert len(set(hashes)) == 3
    for option, value in (("--template-arguments", "[plain]"), ("--template-date", "31.1.2025")):
        assert main([*arguments(model, data, "naive", option, value), "--out", str(out)]) == 2
        assert f"error: {option}: " in capsys.readouterr().err


def test_the_files_of_an_encoder_are_part_of_the_specification(model, data, encoder, tmp_path):
    folder = shutil.copytree(encoder.removeprefix("path:"), tmp_path / "encoder")
    before = setting_of(model, data, "dense", encoder=str(folder))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "who "}}')
    assert setting_of(model, data, "dense", encoder=str(folder)).assets != before.assets
    assert setting_of(model, data, "naive").assets == {}


def test_the_spacing_of_the_corpus_is_part_of_the_specification(model, data, lm):
    """Of all questions of the file, whatever the limit; prompts know it, and other variants are
    as they were.
    """
    by_corpus = setting_of(model, data, spacing="corpus")
    prompts = [answering.prompt_of(e, by_corpus, lm.tokenizer) for e in examples_of(data)]
    assert by_corpus.corpus_spacing == pytest.approx(corpus_spacing(prompts))
    assert {prompt.corpus_spacing for prompt in prompts} == {by_corpus.corpus_spacing}
    assert setting_of(model, data).corpus_spacing is None
    compressed = {"inner": "superposition", "inner_options": {"spacing": "corpus"}}
    assert setting_of(model, data, "compressed", **compressed).corpus_spacing
    method = making.make("superposition", spacing="corpus")
    assert answering.ask(lm, method, examples_of(data)[0], by_corpus).status == "ok"


# ---- failures


@pytest.fixture
def with_a_long_one(data, tmp_path):
    """The questions, the second of which has a document that is longer than the context."""
    lines = read_lines(data)
    lines[1]["ctxs"][2]["text"] = "long " * 300
    return write_lines(tmp_path / "long.jsonl", lines)


def test_an_answer_that_the_context_cuts_is_marked(model, data, lm):
    """Not one that ends by itself there, nor at its limit."""
    setting = setting_of(model, data, "naive")
    example = examples_of(data)[0]
    limited = setting.model_copy(update={"max_new_tokens": 2})
    assert not answering.ask(lm, making.make("naive"), example, limited).cut
    tokens = answering.prompt_of(example, setting, lm.tokenizer).total_tokens
    short = load_lm(str(model), threads=1, max_context=tokens + 2)
    record = answering.ask(short, making.make("naive"), example, setting)
    assert (record.status, record.tokens["generated"], record.cut) == ("ok", 2, True)
    stopped = answering.ask(short, making.make("naive"), example, limited)
    assert (stopped.tokens["generated"], stopped.cut) == (2, False)


def failing(error):
    class Failing(type(making.make("naive"))):  # type: ignore[misc]
        def answer(self, *args):
            raise error

    return Failing()


def test_an_allocation_that_fails_fails_the_question(model, data, lm):
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 50, dtype=torch.uint8)
    record = answering.ask(
        lm, failing(error.value), examples_of(data)[0], setting_of(model, data, "naive")
    )
    assert record.status == "failed"
    assert "can't allocate memory: you tried to allocate 1125899906842624 bytes" in str(
        record.reason
    )


@pytest.mark.parametrize("name", ["naive", "superposition", "cfic", "parallel_experts"])
def test_damaged_weights_fail_the_question_by_name(name, model, data):
    damaged = load_lm(str(model))
    damaged.decoder.weights.embedding.fill_(float("nan"))
    method = making.make(name, **({"scores": "equal"} if name == "parallel_experts" else {}))
    [first, *_] = examples_of(data)
    record = answering.ask(damaged, method, first, setting_of(model, data, name))
    assert (record.status, record.text) == ("failed", "")
    assert "not finite" in str(record.reason)


def test_a_text_at_which_the_tokenizer_panics_fails_its_question(model, data):
    panicking = load_lm(str(model))
    pattern = Split(Regex("(?:[a-z ]+[a-z ]+)+!"), "isolated")
    panicking.tokenizer.backend_tokenizer.pre_tokenizer = pattern
    [first, *_] = examples_of(data)
    long = replace(first, question="which " * 40)
    for options in ({}, {"failures": ()}):
        if options:
            with pytest.raises(UserError, match="the tokenizer cannot read"):
                answering.ask(
                    panicking,
                    making.make("naive"),
                    long,
                    setting_of(model, data, "naive"),
                    **options,
                )
        else:
            record = answering.ask(
                panicking, making.make("naive"), long, setting_of(model, data, "naive")
            )
            assert record.status == "failed"
            assert "the tokenizer cannot read this text" in str(record.reason)


def test_a_defect_is_not_hidden(model, data, lm):
    with pytest.raises(ZeroDivisionError):
        answering.ask(
            lm, failing(ZeroDivisionError()), examples_of(data)[0], setting_of(model, data, "naive")
        )


def test_a_model_that_the_method_cannot_run_on_is_said_before_any_question(
    model, data, tmp_path, monkeypatch
):
    method = making.make("naive")
    monkeypatch.setattr(type(method), "unsupported", lambda self, lm: "needs a crystal ball")
    job = runner.Job(
        setting_of(model, data, "naive"), method, examples_of(data), "naive", tmp_path / "x.jsonl"
    )
    with pytest.raises(UserError, match=r"naive on .*: needs a crystal ball"):
        runner.run(job, engines.Engines())
    assert not (tmp_path / "x.jsonl").exists()


# ---- side by side


def test_side_by_side_the_answers_are_the_same_and_a_question_that_does_not_fit_fails_by_itself(
    model, with_a_long_one, tmp_path
):
    """Without seconds of their own, records say how many shared them."""
    found = {}
    for batch in ("1", "3", "auto"):
        out = tmp_path / f"{batch}.jsonl"
        assert (
            main(
                [
                    *arguments(model, with_a_long_one, "superposition", "--batch", batch),
                    "--out",
                    str(out),
                ]
            )
            == 3
        )
        found[batch] = records.read(out)
    assert [r.status for r in found["1"]] == ["ok", "failed", "ok", "ok"]
    assert records.read_meta(tmp_path / "1.jsonl")["counts"] == {"records": 4, "failed": 1}
    failed = found["1"][1]
    assert re.fullmatch("document 3 has .*the model's context is 1024 tokens", failed.reason)
    assert (failed.trace, failed.prediction, len(failed.prompt_sha256)) == ([], "", 64)
    assert {r.batch for r in found["1"]} == {1}
    assert {r.batch for r in found["3"]} == {3}
    assert {r.batch for r in found["auto"]} == {QUESTIONS}
    for batch in ("3", "auto"):
        assert [unclocked(r) for r in found[batch]] == [unclocked(r) for r in found["1"]]
        assert all(r.online_s is r.offline_s is r.first_token_s is None for r in found[batch])


def test_what_needs_more_memory_is_asked_again_alone(model, data, lm):
    method = making.make("naive")
    answer = type(method).answer

    class Greedy(type(method)):  # type: ignore[misc]
        def answer(self, engine, state, prompt, limits):
            if engine is not lm and "5" in prompt.question:
                raise MemoryError
            return answer(self, engine, state, prompt, limits)

    setting = setting_of(model, data, "naive")
    examples = examples_of(data)
    found = list(concurrency.answers(lm, Greedy(), examples, setting, 2))
    assert [r.batch for r in found] == [2, 2, 2, 1]
    alone = {e.key: unclocked(answering.ask(lm, method, e, setting)) for e in examples}
    assert {r.key: unclocked(r) for r in found} == alone


def unclocked(record):
    """What does not depend on how many were answered side by side."""
    left = {k: v for k, v in untimed(record).items() if k != "batch"}
    return left | {"saliency": [s and round(s, 3) for s in left["saliency"]]}


@pytest.mark.parametrize(
    ("name", "other"), [("cpu_model", "Another CPU"), ("engine_code", "0123456789ab")]
)
def test_kept_documents_are_known_by_processor_code_and_kernels(
    name, other, model, data, tmp_path, monkeypatch
):
    kept = engines.DocumentFolder(tmp_path, 10**6)
    setting = setting_of(model, data)
    before = kept.store(setting).decoder
    assert kept.store(setting).decoder == before
    # LongRoPE has other frequencies beyond a length
    longer = setting.engine.model_copy(update={"max_context": 9})
    assert kept.store(setting.model_copy(update={"engine": longer})).decoder != before
    monkeypatch.setattr(engines, name, lambda *_: other)
    assert kept.store(setting).decoder != before
    monkeypatch.undo()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER")
    assert kept.store(setting).decoder != before
    monkeypatch.undo()
    monkeypatch.setattr(type(engines.choice.active()), "digest", lambda *_: "other kernels")
    assert kept.store(setting).decoder != before


def test_variants_share_a_loaded_model(model, data, tmp_path, monkeypatch):
    """One with a finder first: the next variant has none."""
    loads = []
    load = engines.backend.load
    monkeypatch.setattr(
        engines.backend, "load", lambda *given, **more: loads.append(given) or load(*given, **more)
    )
    loaded = engines.Engines(threads=1)
    alone = engines.Engines(threads=1)
    found = setting_of(model, data, "cfic", top_k=1)
    found = found.model_copy(update={"finder": FinderFacts(model=str(model))})
    first = making.make("cfic", top_k=1)
    plain = setting_of(model, data, "naive")
    assert cast(LM, loaded.ready(found, first)).finder is not None
    assert len(loads) == 2
    example = examples_of(data)[0]
    answering.ask(loaded.ready(found, first), first, example, found)
    shared = answering.ask(
        loaded.ready(plain, making.make("naive")), making.make("naive"), example, plain
    )
    assert len(loads) == 2
    fresh = answering.ask(
        alone.ready(plain, making.make("naive")), making.make("naive"), example, plain
    )
    assert untimed(shared) == untimed(fresh)


def test_a_finder_of_another_vocabulary_is_refused_by_its_name(model, data):
    found = setting_of(model, data, "cfic", top_k=1)
    found = found.model_copy(update={"finder": FinderFacts(model=str(model))})
    loaded = engines.Engines(threads=1)
    method = making.make("cfic", top_k=1)
    finder = cast(LM, cast(LM, loaded.ready(found, method)).finder)
    finder.tokenizer.get_vocab = lambda: {"other": 0}
    problem = f"{model} and {model}: .* have different vocabularies"
    with pytest.raises(UserError, match=problem):
        loaded.ready(found, method)


# ---- again


def test_a_finished_run_touches_nothing_and_loads_no_model(model, data, tmp_path, monkeypatch):
    command = [*arguments(model, data), "--out", str(tmp_path / "x.jsonl")]
    assert main(command) == 0
    before = contents(tmp_path)
    assert set(before) == {"x.jsonl", "x.meta.json"}
    monkeypatch.setattr(
        engines.backend, "load", lambda *_, **__: pytest.fail("the model was loaded")
    )
    assert main(command) == 0
    assert contents(tmp_path) == before


@pytest.mark.parametrize("earlier", ["killed", "of fewer questions", "with a failure"])
def test_a_sequential_method_starts_over(
    earlier,
    model,
    data,
    tmp_path,
    monkeypatch,
    caplog,
):
    """The index of earlier questions orders the documents of later ones: it must hold all of them,
    in their order.
    """
    lines = read_lines(data)
    passages = lines[0]["ctxs"]
    for number, line in enumerate(lines):
        line["ctxs"] = [passages[number - place] for place in range(4)]
    write_lines(tmp_path / "x", lines)
    command = [*arguments(model, tmp_path / "x", "context_pilot"), "--out"]
    assert main([*command, str(tmp_path / "whole.jsonl")]) == 0
    command.append(str(tmp_path / "x.jsonl"))
    timed = answering.timed
    calls = []

    def failing(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt if earlier == "killed" else UserError("no")
        return timed(*given)

    if earlier == "of fewer questions":
        assert main([*command, "--limit", "2"]) == 0
    else:
        with monkeypatch.context() as patch:
            patch.setattr(answering, "timed", failing)
            assert main(command) == (130 if earlier == "killed" else 3)
    assert main([*command, *(["--retry-failed"] if earlier == "with a failure" else [])]) == 0
    resumed, whole = (records.read(tmp_path / f"{name}.jsonl") for name in ("x", "whole"))
    assert [untimed(record) for record in resumed] == [untimed(record) for record in whole]
    assert len({tuple(record.kept) for record in whole}) > 1
    assert (
        "but records of context_pilot depend on the questions before them; all run again"
        in caplog.text
    )
    assert list((tmp_path / "former").iterdir())
