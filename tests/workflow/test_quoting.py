"""No value of a configuration changes what a shell line does: each reaches its command as it is, as
one argument.
"""

import ast
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

HOSTILE = "a b'c\"d$(touch pwned)`touch pwned`;touch pwned\n&|<>*~#\\e {x}"
RULES = Path(__file__).parents[2] / "workflow" / "rules"


def lines():
    """(file and number, pattern) of every shell line."""
    for path in sorted(RULES.glob("*.smk")):
        for number, text in enumerate(re.findall(r"shell:\n((?: +[\"'].*\n?)+)", path.read_text())):
            yield f"{path.stem}-{number}", ast.literal_eval(f"({text})")


LINES = dict(lines())


class Values:
    """Whatever is asked for, in every form that a rule has it: one text, or several with
    attributes.
    """

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            [HOSTILE, HOSTILE]
            if name in ("options", "judge", "part", "labels", "evaluation", "records")
            else HOSTILE
        )

    def __str__(self):
        return HOSTILE


@pytest.mark.parametrize("name", LINES)
def test_values_are_arguments_and_nothing_else(name, tmp_path):
    from snakemake.utils import format

    values = {key: Values() for key in ("input", "output", "params", "wildcards")}
    resources = SimpleNamespace(runtime=1, gpu=1)
    line = format(LINES[name], **values, log=HOSTILE, resources=resources, threads=1)
    stub = 'ragauge() { printf \'%s\\0\' "$@" >> arguments; }; cp() { ragauge "$@"; }\n'
    stub += 'openssl() { ragauge "$@"; }\n'
    stub += 'tee() { cat > /dev/null; printf %s "$1" > log; }\n'
    done = subprocess.run(
        ["bash", "-euc", stub + line], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arguments", "log"]
    assert (tmp_path / "log").read_text() == HOSTILE
    arguments = (tmp_path / "arguments").read_text().split("\0")[:-1]
    expected = {HOSTILE, *shlex.split(re.sub(r"\{[^}]*\}|[()]", "", LINES[name].split("2>&1")[0]))}
    assert HOSTILE in arguments
    assert set(arguments) - expected <= {"1"}


def test_every_rule_has_its_shell_line_here():
    assert len(LINES) == sum(path.read_text().count("shell:") for path in RULES.glob("*.smk"))


@pytest.mark.parametrize(
    "section", ["models", "datasets", "methods", "databases", "pipelines", "training", "run"]
)
def test_a_label_cannot_become_an_option(section):
    from ragauge.config import loading
    from ragauge.errors import UserError

    data = {"run": "small", "models": {"smollm2-135m-instruct": {}}}
    data |= {"methods": {"naive": {}}, "datasets": {"nq_open": {}}}
    hostile = "--out" if section == "run" else {**data.get(section, {}), "--out": {}}
    with pytest.raises(UserError, match=r"small\.yaml: .*--out|small\.yaml: run: "):
        loading.parse({**data, section: hostile}, "small.yaml")


def test_a_source_is_no_option_of_fetch(tmp_path, capsys):
    from ragauge.cli._main import main

    [line] = [line for line in LINES.values() if "ragauge fetch" in line and "source" in line]
    assert " -- {params.source:q}" in line
    assert main(["fetch", "--", f"--out={tmp_path / 'pwned'}"]) == 2
    assert "--out=" in capsys.readouterr().err
    assert not (tmp_path / "pwned").exists()
