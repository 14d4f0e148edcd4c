"""The page of components is true: its examples are added to a copy of the package and used."""

import json
import re
import shutil
from functools import partial

import pytest
import yaml

from json_lines import read_lines
from ragauge.testing import write_checkpoint, write_questions

BLOCK = re.compile(r"^```\w+\n(?:#|\.\.) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOTPOT = {
    "id": "5a8b57f2",
    "question": "Which river runs through the capital of Austria?",
    "answer": "Danube",
    "context": {
        "title": ["Graz", "Vienna", "Danube"],
        "sentences": [
            ["Graz is a city."],
            ["Vienna is a capital.", " It lies on the Danube."],
            ["A river."],
        ],
    },
    "supporting_facts": {"title": ["Vienna", "Danube", "Vienna"], "sent_id": [0, 0, 1]},
}
ENGINE = """
import sys
from ragauge.engines import backend
from ragauge.engines.protocol import Limits
from ragauge.errors import UserError
from ragauge.methods.base import making as methods
from ragauge.methods.prompts.prompt import PromptStyle, build_prompt
source = sys.argv[1]
theirs, ours = backend.load(source, "transformers"), backend.load(source)
prompt = build_prompt(
    "Which river?", [("Graz", "A city."), ("Vienna", "By the Danube.")],
    PromptStyle("Answer.", "plain"), theirs.tokenizer,
)
limits = Limits(8, ignore_stop=True)
naive = methods.make("naive")
with theirs.tracing() as trace:
    print(naive.answer(theirs, None, prompt, limits).ids == naive.answer(ours, None, prompt, limits).ids)
print([(call.stage, len(call.lengths)) for call in trace], len(theirs.respond("Danube", limits).token_s))
print(naive.refusal(theirs), "|", methods.make("prompt_cache").refusal(theirs))
inner = {"inner": "first_documents", "inner_options": {"top_k": 1}}
reversed_first = methods.make("reversed_documents", **inner)
print(reversed_first.answer(theirs, None, prompt, limits).kept)
around = methods.make("reversed_documents", inner="bm25")
print(around.inner_options, around.refusal(theirs))
try:
    methods.make("reversed_documents", "x", inner="first_documents", inner_options={"top_k": 0})
except UserError as error:
    print(error)
"""
FAMILY = """
import sys, torch, transformers
from pathlib import Path
from ragauge.engines.checkpoint import read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.spans import Row
config = transformers.SeedOssConfig(
    vocab_size=259, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, bos_token_id=None, eos_token_id=None, tie_word_embeddings=True,
)
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(config).eval()
for name, parameter in model.named_parameters():
    if "norm" in name or "bias" in name:
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
model.save_pretrained(sys.argv[1])
ids = list(range(20, 60))
folder = Path(sys.argv[1])
lm = LM(Decoder(read_shape(folder), read_weights(folder, torch.float32, torch.device("cpu"))))
ours = lm.extend(lm.new_cache(64), [Row(ids, range(40))], stage="prompt", last_logits=True).last_logits[0]
with torch.no_grad():
    theirs = model(torch.tensor([ids])).logits[0, -1]
print(float((ours - theirs).abs().max()))
"""
FLAT = """
import sys
from pathlib import Path
import numpy as np
import tiny_database as tiny
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.indexes.base.recipe import Together
from ragauge.pipelines.retrieval.index import Index
from ragauge.pipelines.retrieval.recall import exact_search, recall
from ragauge.pipelines.retrieval.settings import DatabaseSettings
home = Path(sys.argv[1])
home.mkdir()
made = tiny.recipe(tiny.write_corpus(home / "c.jsonl"), tiny.write_tokenizer(home / "tokenizer"), 2)
exact = DatabaseSettings(indexes={"exact": {"type": "flat", "metric": "inner_product"}}).indexes["exact"]
index = tiny.build(home / "db", made, "exact", exact, parts=2)
vectors = Vectors.open(home / "db", exact)
own = np.concatenate([part.vectors for part in vectors.embeddings]).astype(np.float32)
asked = np.random.default_rng(0).standard_normal((20, tiny.DIM)).astype(np.float32)
distances, ids = index.search(asked, 7, 1)
products = asked @ own.T
np.testing.assert_allclose(distances, -np.sort(-products, axis=1)[:, :7], rtol=1e-4)
np.testing.assert_allclose(np.take_along_axis(products, ids, 1), distances, rtol=1e-4)
parts = [Index(index.database, "exact", (number, 2)) for number in range(2)]
np.testing.assert_array_equal(Together(parts, True).search(asked, 7, 1)[0], distances)
recalls = recall(index, asked, exact_search(vectors, asked, 10, range(2))[1])
print(len(index), len(index.database), {row["recall"] for row in recalls})
"""


SCHEDULE = """
import sys
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/support"]
import tiny_models
from pipeline_calls import calls
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.pipeline import Pipeline
from retro_parts import DOCUMENTS, ExactRetriever, record_of, specified, tokens
chosen = specified("alternate", 16)
pipeline = Pipeline(JointDecoder(tiny_models.tiny_lm()), chosen, ExactRetriever(DOCUMENTS))
print(len(record_of(pipeline, EvaluationStretch("0", 0, tuple(tokens(150, 10)))).neighbours))
print(sum(call.stage == "neighbours" for call in calls(chosen.pipeline)))

from ragauge.pipelines.modes.base import Checkpoint
chosen = specified("retro", mode="in_context")
model = chosen.mode.load(Checkpoint(sys.argv[2]))
pipeline = Pipeline(model, chosen, ExactRetriever(DOCUMENTS))
record = record_of(pipeline, EvaluationStretch("0", 0, tuple(tokens(150, 10))))
print(record.status, len(record.neighbours))
text, neighbours = tokens(70, 1), [tokens(20, 2), tokens(10, 3)]
together, plain = model.open(70, 30), model.open(100)
together.read(text[:64])
together.attach(neighbours)
behind = together.read(text[64:])
print(float((behind - plain.read([*neighbours[0], *neighbours[1], *text])[-6:]).abs().max()) < 1e-4)
print(together.decode(behind[-1], 5) == plain.decode(behind[-1], 5), together.length)
for mistake in ({"schedule": "retro", "mode": "in_context", "retrofit_minutes": 1.0}, {"schedule": "alternate"}):
    try:
        specified(**mistake)
    except ValueError as error:
        print(str(error).replace(chr(10), " "))
"""


@pytest.fixture(scope="module")
def blocks(root):
    """(file, text) of every example of the page."""
    found = BLOCK.findall((root / "docs/components.md").read_text(encoding="utf-8"))
    assert len(found) > 15
    return found


@pytest.fixture(scope="module")
def extended(root, blocks, tmp_path_factory):
    """A copy of the repository's code with every example added, and an experiment that uses them."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("src", "workflow", "profiles", "envs"):
        shutil.copytree(
            root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    model = write_checkpoint(folder / "tiny")
    questions = write_questions(folder / "nq.jsonl", count=4)
    experiment = {
        "run": "added",
        "models": {"tiny": {"source": f"path:{model}"}},
        "datasets": {"nq_open": {"data": str(questions)}},
        "methods": {},
        "databases": {},
        "pipelines": {},
        "generation": {"max_new_tokens": 4},
    }
    for name, text in blocks:
        if name == "config.yaml":
            for section, line in yaml.safe_load(text).items():
                experiment[section] |= line
        else:
            _add(folder / name, text)
    experiment["databases"]["graphs"] = {"indexes": {"graph": {"type": "hnsw", "parts": 2}}}
    _write(folder / "config.yaml", experiment)
    here = {"datasets": "nq_open", "methods": "first_k2"}  # what can be run without a download
    models = {
        label: experiment["models"][label] | {"source": f"path:{model}"}
        for label in ("tiny", "by_transformers")
    }
    _write(
        folder / "local.yaml",
        experiment
        | {section: {label: experiment[section][label]} for section, label in here.items()}
        | {"models": models, "items": ["lost_in_the_middle"], "databases": {}, "pipelines": {}},
    )
    return folder


def _write(path, experiment):
    path.write_text(yaml.safe_dump(experiment, sort_keys=False))


def _add(path, text):
    """A new file, or more lines of one that exists."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(before + text, encoding="utf-8")


@pytest.fixture(scope="module")
def python(extended, preloaded):
    """What a Python that sees the copy prints."""
    return partial(preloaded.run, "python", folder=extended, PYTHONPATH=str(extended / "src"))


@pytest.fixture(scope="module")
def ragauge(python):
    return partial(python, "-m", "ragauge.cli")


@pytest.fixture(scope="module")
def records(extended, python):
    """The answers of the added method under the tiny model, from a run of the workflow that renders
    the added item.
    """
    python("-m", "snakemake", "lost_in_the_middle", "--cores", "1", "--configfile", "local.yaml")
    return extended / "results" / "added" / "answers" / "nq_open" / "tiny" / "first_k2.jsonl"


def test_the_workflow_plans_what_was_added(python):
    output = python("-m", "snakemake", "-n")
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE))
    assert jobs["lost_in_the_middle"] == "1"
    assert jobs["answers"] == "12"  # two variants, two data sets, three models
    built = [jobs[rule] for rule in ("index_training", "index_codes", "index", "index_recall")]
    assert built == ["2", "4", "2", "2"]  # the added type's index and a graph, of two shards each


def test_the_method_answers_from_the_documents_it_says(records):
    answered = read_lines(records)
    assert [(record["status"], record["kept"]) for record in answered] == [("ok", [0, 1])] * 4


def test_the_data_set_reads_its_official_record(extended, ragauge):
    (extended / "hotpot.jsonl").write_text(json.dumps(HOTPOT) + "\n")
    ragauge("fetch", "--dataset", "hotpotqa", "--data", "hotpot.jsonl", "--out", "examples.jsonl")
    example = json.loads((extended / "examples.jsonl").read_text())
    assert example["gold"] == [1, 2]
    assert example["documents"][1] == {
        "title": "Vienna",
        "text": "Vienna is a capital. It lies on the Danube.",
    }
    assert (example["key"], example["answers"]) == ("5a8b57f2", ["Danube"])


def test_the_metric_scores_records_and_plain_predictions(extended, records, ragauge):
    scored = json.loads(ragauge("score", "--metric", "answer_rate", str(records), "--json"))
    assert scored["n"] == 4
    (extended / "said.jsonl").write_text('{"prediction": "The Danube"}\n{"prediction": "the"}\n')
    assert (
        json.loads(ragauge("score", "--metric", "answer_rate", "said.jsonl", "--json"))["mean"]
        == 0.5
    )


def test_a_text_engine_and_a_wrapper_are_one_file_each(extended, python):
    printed = python("-c", ENGINE, str(extended / "tiny")).splitlines()
    same, trace, refusals, kept, options, error = printed[-6:]
    assert (same, trace) == ("True", "[('prompt', 1)] 8")
    assert refusals == "None | requires an engine with key-value caches"
    assert kept == "(1,)"
    assert options.startswith("{'top_k': 1, 'path_caching': True, ")
    assert options.endswith(
        ", 'idf': 'rank_bm25', 'split': 'words'} requires an engine with key-value caches"
    )
    assert error.startswith("x.inner.top_k: Input should be greater than or equal to 1")


def test_the_family_equals_transformers(python):
    assert float(python("-c", FAMILY, "seed_oss").splitlines()[-1]) < 1e-4


def test_the_index_type_is_brute_force(root, python):
    code = f"import sys; sys.path.append({str(root / 'tests/support')!r}){FLAT}"
    held, chunks, recalls = python("-c", code, "flat").splitlines()[-1].split(maxsplit=2)
    assert (held, recalls) == (chunks, "{1.0}")


def test_the_schedule_and_the_form_are_run_planned_and_checked(root, extended, python, ragauge):
    printed = python("-c", SCHEDULE, str(root / "tests"), str(extended / "tiny")).splitlines()
    assert printed[:2] == ["3", "3"]  # of six windows
    assert printed[2:5] == ["ok 2", "True", "True 74"]
    assert "only valid with mode 'cross_attention' or 'joint', not 'in_context'" in printed[5]
    assert "schedule 'alternate' requires at most 32, not 64" in printed[6]
    assert "pipelines alternate, in_context" in ragauge("validate", "config.yaml")
    assert "no_retrieval,piperag" in ragauge("piperag", "run", "--help").replace("alternate,", "")


def test_the_items_rule_renders_it_from_records(extended, records):
    rendered = extended / "reports" / "added" / "lost_in_the_middle.csv"
    lines = rendered.read_text().splitlines()
    assert (
        lines[0]
        == "model,dataset,method,variant,quantity,published,measured,low,high,n,p,ratio,note,status,source"
    )
    assert len(lines) == 7  # two models, three thirds
    assert lines[1].startswith("tiny,nq_open,first_documents,first_k2,first_third,")
    assert rendered.with_suffix(".svg").stat().st_size > 1000
