"""The pages name what there is: commands parse, components and options are described, links lead
somewhere.
"""

import pkgutil
import re
import runpy
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from ragauge import registry
from ragauge.cli._parser import command_parser
from ragauge.methods.base.method import Method

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "config/README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
    *(f"docs/components/{page.name}" for page in sorted((ROOT / "docs/components").glob("*.md"))),
]


def text(root: Path, page: str) -> str:
    return (root / page).read_text(encoding="utf-8")


def commands(page: str) -> list[list[str]]:
    """The arguments of every line of an indented block that calls a verb."""
    joined = page.replace("\\\n", " ")
    return [
        shlex.split(line, comments=True)
        for line in re.findall(r"^    ragauge (\w.*)$", joined, re.MULTILINE)
    ]


def test_every_command_parses(root: Path) -> None:
    for arguments in (arguments for page in PAGES for arguments in commands(text(root, page))):
        command_parser(arguments).parse_args(arguments)


def test_every_verb_has_an_example(root: Path) -> None:
    shown = {arguments[0] for arguments in commands(text(root, "docs/commands.md"))}
    assert shown == set(registry.names("verb"))


def test_every_item_has_a_row(root: Path) -> None:
    rows = re.findall(r"^\|.*\| `(\w+)` \|$", text(root, "docs/items.md"), re.MULTILINE)
    assert sorted(rows) == registry.names("item")


@pytest.mark.parametrize("method", registry.names("method"))
def test_every_method_and_option_is_described(root: Path, method: str) -> None:
    page = text(root, "docs/methods.md")
    row = re.search(rf"^\| `{method}` \|.*$", page, re.MULTILINE)
    assert row
    for option in fields(registry.component("method", method, Method)):
        assert f"`{option.name}`" in page, option.name
        assert method == "superposition" or f"`{option.name}`" in row[0], option.name


def test_the_drawing_of_methods_is_what_its_script_writes(root: Path) -> None:
    script = runpy.run_path(str(root / "docs/reuse_methods.py"))
    assert text(root, "docs/reuse_methods.svg") == script["drawn"]()
    assert {panel.name for panel in script["PANELS"]} <= set(registry.names("method"))


def test_every_data_set_and_metric_is_described(root: Path) -> None:
    page = text(root, "docs/data-sets.md")
    for name in registry.names("dataset") + registry.names("metric"):
        assert f"`{name}`" in page, name


def test_every_promise_names_tests_that_exist(root: Path) -> None:
    page = text(root, "docs/reliability.md")
    sections = [part for part in page.split("\n## ") if part.startswith("What is ")]
    assert len(sections) == 4
    rows = [
        row
        for part in sections
        for row in re.findall(r"^\| (?!promise|---).*$", part, re.MULTILINE)
    ]
    assert len(rows) >= 40
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for file, test in named:
            assert re.search(
                rf"^def {test}\(", (root / file).read_text(encoding="utf-8"), re.MULTILINE
            ), test


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_or_a_heading(root: Path, page: str) -> None:
    content = re.sub(r"`[^`\n]+`", "", text(root, page))
    for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", content):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = (root / page).parent / path if path else root / page
        assert target.exists(), link
        assert not heading or heading in headings(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES)
def test_every_named_source_file_exists(root: Path, page: str) -> None:
    content = text(root, page)
    made_by_examples = set(re.findall(r"^(?:#|\.\.) (\S+/\S+)$", content, re.MULTILINE))
    prose = re.sub(r"^```.*?^```$", "", content, flags=re.MULTILINE | re.DOTALL)
    named = set(
        re.findall(r"(?<![\w./:<>{}-])[\w-]+/[\w./-]*\.(?:py|smk|yaml|json|csv|def|proto)\b", prose)
    )
    for path in named - made_by_examples:
        places = (root / path, root / "src/ragauge" / path)
        assert path.startswith("results/") or any(place.exists() for place in places), path


def test_every_named_module_exists(root: Path) -> None:
    pages = "\n".join(text(root, page) for page in PAGES)
    for name in set(re.findall(r"`(?:python -m )?(ragauge(?:\.\w+){2,})`", pages)):
        if name != "ragauge.pipelines.retrieval.v1.Retrieval":  # the service's name on the wire
            assert pkgutil.resolve_name(name)


def headings(content: str) -> set[str]:
    """The anchors of a page's headings."""
    return {
        re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", content, re.M)
    }
