"""Print the completion of a shell: verbs, options, and the names that options take."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ragauge import registry

SHELLS = ("bash", "zsh")
# The kind of component that an option or a positional names; a model is named in the catalog.
NAMED = {
    "method": "method",
    "methods": "method",
    "dataset": "dataset",
    "metric": "metric",
    "metrics": "metric",
    "item": "item",
}
SCRIPT = """\
# Completion of ragauge {version}. For this shell: {how}
{before}_ragauge() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} first=2
    local words="" head=""
    case $verb in {with_steps}) verb="$verb ${{COMP_WORDS[2]}}" first=3 ;; esac
    if (( COMP_CWORD == 1 )); then
        words="{verbs}"
    elif (( COMP_CWORD < first )); then
        case ${{COMP_WORDS[1]}} in
{steps}
        esac
    else
        case "$verb" in
{options}
        esac
        case "$verb $previous" in
{values}
        esac
    fi
    [[ $current == *,* ]] && head=${{current%,*}},
    COMPREPLY=($(compgen -P "$head" -W "$words" -- "${{current##*,}}"))
}}
complete -o bashdefault -o default -F _ragauge ragauge
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit -i && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> None:
    print(_script(args.shell), end="")


def _script(shell: str) -> str:
    """A function for bash, which zsh understands as well. Where it knows no word, the shell completes files."""
    from ragauge import __version__, cli

    parsers = {verb: cli.parser_of(verb) for verb in registry.names("verb")}
    steps = {verb: _steps(parser) for verb, parser in parsers.items()}
    leaves = {
        f"{verb} {step}".strip(): parser
        for verb in parsers
        for step, parser in (steps[verb] or {"": parsers[verb]}).items()
    }
    return SCRIPT.format(
        version=__version__,
        how=f'eval "$(ragauge completion {shell})"',
        before=ZSH if shell == "zsh" else "",
        with_steps="|".join(verb for verb in parsers if steps[verb]),
        verbs=" ".join(parsers),
        steps="\n".join(_case(verb, found) for verb, found in steps.items() if found),
        options="\n".join(_case(f'"{verb}"', _words(parser)) for verb, parser in leaves.items()),
        values="\n".join(
            _case(f'"{verb} {option}"', values) for verb, parser in leaves.items() for option, values in _valued(parser)
        ),
    )


def _case(pattern: str, words: Iterator[str] | list[str] | dict[str, argparse.ArgumentParser]) -> str:
    return f'        {pattern}) words="{" ".join(words)}" ;;'


def _steps(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a verb's steps, if it has any."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser, and what its positionals may be."""
    options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    return [*options, *(value for action in parser._actions if not action.option_strings for value in _values(action))]


def _valued(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Each option that takes a value, with the values that are known: none of a file or a number."""
    for action in parser._actions:
        if action.nargs != 0:
            yield from ((option, _values(action)) for option in action.option_strings)


def _values(action: argparse.Action) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if str(action.metavar).startswith("{"):
        return str(action.metavar).strip("{}").split(",")
    if action.dest == "model":
        from ragauge.assets.catalog import entries

        return [name for name, entry in entries().items() if entry.kind == "model"]
    return registry.names(NAMED[action.dest]) if action.dest in NAMED else []
