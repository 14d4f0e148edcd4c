"""The command line's contract: its verbs, exit codes and one-line errors."""

import subprocess
import sys

import pytest

from json_lines import last_value
from ragauge import registry
from ragauge.cli._main import main

TABLE = """\
cache prune --keep-gb -1 -> --keep-gb: '-1' must be a number from 0
compare a.jsonl b.jsonl -> a.jsonl:
cost --model bloom-3b --method naive -> 'bloomz-3b'? known:
doctor kernel -> 'kernel'; did you mean 'kernels'?
estimate none.yaml -> none.yaml:
fetch minilmm -> 'minilm'? known:
index build --database db --config none.yaml -> none.yaml:
init . -> .: holds files
judge none.jsonl --out x.jsonl -> none.jsonl:
list method -> 'methods'?
{LOAD} -> --rates:
new method 5x -> NAME: '5x'
piperag export --model mpt --out x -> --model: unknown model 'mpt'; known:
query --server nowhere --text who -> 'nowhere': must be host:port
report page --config none.yaml -> none.yaml:
run --method naiv {GIVEN} -> --method: unknown method 'naiv'; did you mean 'naive'?
score --metric f1 none.jsonl -> none.jsonl:
serve --database none --index ivf -> manifest.json
sft data --out x -> --set: model: is missing
stream --methods naif {GIVEN} -> --method: unknown method 'naif'; did you mean 'naive'?
study --documents none --questions none.csv --model smollm2-135m-instruct --out x -> none.csv:
time --methods naif {GIVEN} -> --method: unknown method 'naif'; did you mean 'naive'?
time --methods naive {GIVEN} --serve llama.cpp -> --serve: starts a server of a model openai:NAME
load --methods naive {GIVEN} --serve llama.cpp --rates 1 -> --serve: starts a server of a model openai:NAME
stream --methods naive {GIVEN} --serve llama.cpp -> --serve: starts a server of a model openai:NAME
validate none.yaml -> none.yaml:
fetch --dataset nq_open --set shufle=1 --out x.jsonl -> did you mean 'shuffle'?
cost --method naive --model mpt-7b-instruct --tokens nqopen -> did you mean 'nq_open'?
run --method naive --dataset nq_opn --model smollm2-135m-instruct --out x.jsonl -> 'nq_opn'; did you mean 'nq_open'?
{RUN} --set top_k -> --set 'top_k': must be key=value
{RUN} --set top_k=[ -> --set 'top_k=['
{RUN} --data no-such.jsonl -> no-such.jsonl
{RUN} --set dataset.gold_position=-1 -> nq_open.gold_position: Input should be greater than or equal to 0; got -1
score --metric f1 a.jsonl b.jsonl -> --metric f1:
score --metric perplexity none.jsonl -> none.jsonl:
run --gather none.jsonl --out x.jsonl -> none.jsonl: none.meta.json
{LOAD} --rates nan -> --rates: must be
cost --method naive -> --model:
serve --database d --index i --part 2/2 -> '2/2' must be I/N
{RUN} --top-k 2 -> parameters of methods: --set KEY=VALUE
cost --method bm25 --model mpt-7b-instruct --top_k 2 -> '--top-k'?
index build --databse x -> '--database'?
rnu -> 'rnu'; did you mean 'run'?
 -> VERB (see ragauge --help)
run --method prefix_tree {GIVEN} --part 0/2 -> --part: answers of prefix_tree
{RUN} --limit 0 -> --limit: '0' must be a whole number from 1
{RUN} --device tpu -> --device: unknown device 'tpu'; did you mean 'cpu'? known: auto, cpu, cuda
piperag export --model openai:m --out x -> --model: 'openai:m'
fetch minilm --config x.yaml -> --dataset NAME or --config
fetch --dataset nq_open -> --out: required with --dataset
fetch minilm --seed 1 -> --data, --set, --seed: only valid with --dataset
fetch minilm --lock -> --lock: only valid with --config
fetch --config x.yaml --out x.json -> --out: only valid with an asset or --dataset
piperag export --mode retro --out x -> --mode retro: requires --database
piperag export --mode retro --database x --adapters y --out x -> --adapters: not valid with mode 'retro'
piperag export --mode cross_attention --out x -> --mode cross_attention:
piperag export --adapters nowhere --out x -> --adapters: no such file: nowhere
new method naive --out mine -> method 'naive'
new ranker superposition --out mine -> method 'superposition'
new metric ../up --out mine -> must be words of small letters
new metric class --out mine -> 'class' is a word of Python
piperag retrofit --database d --out o --minutes 0 -> --minutes: must be greater than 0, not '0'
piperag retrofit --database d --out o -> give --index or --server
piperag run --schedule piperag --database d --out x -> --schedule: 'piperag'
{TIME} 0 -> must be a whole number from 1
{TIME} 5,x -> must be a whole number from 1
cache prune --remove -> --older-than-days N, --keep-gb X or both
cost --model mpt-7b-instruct --method cfic -> cfic on the shape of mpt-7b-instruct:
serve --database d --index none --until no -> no: cannot be read
cost --model=mpt-7b-instruct --method=naive --out here/p.json -> cannot be written
"""
GIVEN = "--dataset nq_open --model smollm2-135m-instruct --out x.jsonl"
PARTS = {
    "GIVEN": GIVEN,
    "RUN": f"run --method naive {GIVEN}",
    "LOAD": f"load --methods bm25 {GIVEN}",
    "TIME": "time --dataset paper --model m --out o --new-tokens",
}
# Mistakes of every verb, and what their one line says: the place, the value, the choices.
MISTAKES = [line.format(**PARTS).split(" -> ") for line in TABLE.splitlines()]


def code_of(arguments):
    """The exit code, whether the parser leaves with it or the verb returns it."""
    try:
        return main(arguments)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1


@pytest.mark.parametrize("verb", registry.names("verb"))
def test_every_verb_has_help(verb, capsys):
    assert code_of([verb, "--help"]) == 0
    assert f"usage: ragauge {verb}" in capsys.readouterr().out


def test_every_verb_has_a_mistake_here():
    assert {command.partition(" ")[0] for command, _ in MISTAKES} >= set(registry.names("verb"))


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(
    command,
    message,
    capsys,
    tmp_path,
    monkeypatch,
):
    (tmp_path / "here").write_text("")
    monkeypatch.chdir(tmp_path)
    assert code_of(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("ragauge")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["here"], "nothing is written"


def test_a_defect_keeps_its_traceback(monkeypatch):
    def broken(kind):
        raise ZeroDivisionError(kind)

    monkeypatch.setattr(registry, "names", broken)
    with pytest.raises(ZeroDivisionError):
        main(["list", "methods"])


def test_an_interrupt_is_130(monkeypatch):
    def interrupted(kind):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "names", interrupted)
    assert main(["list", "methods"]) == 130


def test_score_prints_one_json_object_last(tmp_path, capsys):
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"said": "in Paris", "right": ["Paris"]}\n{"said": "Rome", "right": ["Paris"]}\n'
    )
    keys = ["--prediction-key", "said", "--answers-key", "right"]
    assert main(["score", "--metric", "best_subspan_em", str(path), *keys, "--json"]) == 0
    scored = last_value(capsys.readouterr().out)
    assert (scored["mean"], scored["n"]) == (0.5, 2)


def ended(code):
    """A process that ran Python code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "verbs"),
    [(["--help"], []), (["list", "models"], ["list"]), (["run", "--help"], ["run"])],
)
def test_help_and_list_import_nothing_heavy_and_no_verb_but_their_own(arguments, verbs):
    code = (
        "import sys\nfrom ragauge.cli._main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    imported = set(ended(code).stdout.splitlines()[-1].split())
    assert not imported & {"torch", "transformers", "numpy", "pandas"}
    assert [name for name in registry.names("verb") if f"ragauge.cli.{name}" in imported] == verbs


def test_of_libraries_only_warnings_are_printed():
    code = (
        "import logging\nfrom ragauge.cli._main import main\nmain(['list', 'methods'])\n"
        "talkative = logging.getLogger('bm25s')\ntalkative.setLevel(logging.DEBUG)\n"
        "talkative.debug('an index')\ntalkative.warning('a doubt')\n"
        "logging.getLogger('ragauge.io.records').info('ours')"
    )
    assert ended(code).stderr.splitlines() == ["a doubt", "ours"]
