"""The grammar of the command line (docs/command-line.md): one concept has one spelling, whatever the verb."""

import argparse
import ast
import re

import pytest

from json_lines import last_value
from ragauge import registry
from ragauge.cli import _parser
from ragauge.cli._main import main

VERBS = registry.names("verb")
# What a spelling stands for: how its value is written, in every verb that has it.
MEANING = {
    "--config": {"FILE.yaml"},
    "--entry": {"LABEL"},
    "--database": {"FOLDER"},
    "--index": {"LABEL", "INDEX"},  # the second where it is a key of a configuration's section
    "--server": {"HOST:PORT"},
    "--set": {"KEY=VALUE"},
    "--results": {"FOLDER"},
    "--examples": {"FILE.jsonl"},
    "--part": {"I/N"},
    "--threads": {"N", "THREADS"},
    "--methods": {"M,..."},
    "--device": {"{auto,cpu,cuda}"},
}
# How a concept is recognised by its value, and the one way to spell it.
SPELLING = {
    "FILE.yaml": "--config",
    "CONFIG": "config",
    "HOST:PORT": "--server",
    "KEY=VALUE": "--set",
    "I/N": "--part",
}


def parser_of(verb):
    actions = _parser.command_parser([verb])._actions
    [verbs] = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    return verbs.choices[verb]


def options():
    """(verb and step, action) of every argument of every verb."""
    for verb in VERBS:
        for leaf in _parser.leaves(parser_of(verb)):
            for action in leaf._actions:
                yield leaf.prog, action


OPTIONS = list(options())


@pytest.mark.parametrize("option", MEANING)
def test_a_spelling_means_the_same_in_every_verb(option):
    found = {(prog, action.metavar) for prog, action in OPTIONS if option in action.option_strings}
    assert found
    assert {metavar for _, metavar in found} <= MEANING[option], found


def test_a_concept_has_one_spelling():
    for prog, action in OPTIONS:
        if action.metavar in SPELLING:
            assert (action.option_strings or [action.dest]) == [SPELLING[action.metavar]], prog


def test_no_option_is_spelled_in_two_ways():
    for prog, action in OPTIONS:
        names = [name for name in action.option_strings if not name.startswith("--no-")]
        assert len(names) <= 1 or names == ["-h", "--help"], (prog, names)
        for name in action.option_strings:
            assert re.fullmatch(r"--?[a-z0-9]+(-[a-z0-9]+)*", name), (prog, name)


def test_every_verb_is_quiet_on_request_and_prints_json():
    for prog in {prog for prog, _ in OPTIONS}:
        names = {name for leaf, action in OPTIONS if leaf == prog for name in action.option_strings}
        assert "--quiet" in names, prog
        assert prog.split()[1] in _parser.WITHOUT_RESULT or "--json" in names, prog


def test_the_help_has_every_verb_once_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = re.findall(r"^  (\w+)  +[A-Z]", capsys.readouterr().out, re.MULTILINE)
    assert sorted(shown) == VERBS


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("list metrics", "metrics"),
        ("validate configs/ci/smoke.yaml", "plan"),
        ("estimate configs/papers/gpu.yaml", "not_estimated"),
        ("cost --model mpt-7b-instruct --method naive", "model"),
        ("fetch path:README.md", "path"),
    ],
)
def test_json_is_one_object_on_the_last_line(
    command,
    key,
    root,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(root)
    assert main([*command.split(), "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert last_value(captured.out)[key]
    assert captured.err == ""


# --- spellings in rules; those in pages parse (`test_documentation.py`) ---


def test_rules_use_todays_spelling(root):
    found = [
        command
        for path in (root / "workflow").rglob("*.smk")
        for command in commands(path.read_text())
    ]
    assert found
    for command in found:
        known = known_options(command)
        for word in command:
            option = word.partition("=")[0]
            assert not option.startswith("--") or option == "--" or option in known, command


def commands(rules):
    """The `ragauge` commands of rules' shell lines, up to what follows in the shell."""
    for quoted in re.findall(r"shell:\n((?: +[\"'].*\n?)+)", rules):
        for line in re.findall(r"\bragauge (.*)", ast.literal_eval(f"({quoted})")):
            # {params.verb:q}: the protocols of times share a rule
            yield re.split(r"2>&1|\|\||#", line.replace("{params.verb:q}", "time"))[0].split()


def known_options(command):
    parser = parser_of(command[0])
    leaves = list(_parser.leaves(parser))
    mine = [leaf for leaf in leaves if leaf.prog.split()[-1] == [*command, ""][1]] or leaves[:1]
    return {name for leaf in mine for name in leaf._option_string_actions}
