"""The pages name what there is: commands parse, components and options are described, links lead
somewhere.
"""

import argparse
import pkgutil
import re
import runpy
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from ragauge import registry
from ragauge.cli._parser import command_parser
from ragauge.config import loading
from ragauge.config.experiment import Config
from ragauge.config.reading import checked
from ragauge.methods.base.method import Method

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "config/README.md",
    "configs/README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
]
PAPERS = ("superposition", "cfic", "piperag")  # targets of the workflow beside its items


def text(root, page):
    return (root / page).read_text(encoding="utf-8")


def commands(page, program="ragauge"):
    """The arguments of every line of an indented block that calls a program."""
    joined = page.replace("\\\n", " ")
    lines = re.findall(rf"^    {program} (.+)$", joined, re.MULTILINE)
    return [
        shlex.split(line, comments=True)
        for line in lines
        if program != "ragauge" or line[0].isalpha()
    ]


def test_every_command_parses(root):
    for arguments in (arguments for page in PAGES for arguments in commands(text(root, page))):
        command_parser(arguments).parse_args(arguments)


def configuration(files, settings):
    """The configuration of files, each laid over those before it, and of settings; its data need not be there."""
    from snakemake.utils import update_config

    merged = {}
    for file in files:
        update_config(merged, loading.read(file))
    for key, _, value in (setting.partition("=") for setting in settings):
        update_config(merged, {key: yaml.safe_load(value)})
    return checked(Config, merged, " ".join(map(str, files)))


@pytest.mark.parametrize("page", PAGES)
def test_every_run_of_the_workflow_has_its_configuration_and_targets(root, page):
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--configfile", nargs="+", default=["config.yaml"])
    parser.add_argument("--config", nargs="+", default=[])
    for option in ("--cores", "--resources", "--profile", "--sdm", "--apptainer-args", "--report"):
        parser.add_argument(option)
    for arguments in commands(text(root, page), "snakemake"):
        parsed, _ = parser.parse_known_args(arguments)
        configuration([root / file for file in parsed.configfile], parsed.config)
        assert set(parsed.targets) <= {*registry.names("item"), *PAPERS}, arguments
        if parsed.profile:
            assert (root / parsed.profile / "config.yaml").exists(), arguments


def test_every_verb_has_an_example(root):
    shown = {arguments[0] for arguments in commands(text(root, "docs/command-line.md"))}
    assert shown == set(registry.names("verb"))


def test_every_item_has_a_row(root):
    rows = re.findall(r"^- `(\w+)`: ", text(root, "docs/items.md"), re.MULTILINE)
    assert sorted(rows) == registry.names("item")


@pytest.mark.parametrize("method", registry.names("method"))
def test_every_method_and_option_is_described(root, method):
    page = text(root, "docs/methods.md")
    row = re.search(rf"^\| `{method}` \|.*$", page, re.MULTILINE)
    assert row
    for option in fields(registry.component("method", method, Method)):
        assert f"`{option.name}`" in page, option.name
        assert method == "superposition" or f"`{option.name}`" in row[0], option.name


def test_the_drawing_of_methods_is_what_its_script_writes(root):
    script = runpy.run_path(str(root / "docs/reuse_methods.py"))
    assert text(root, "docs/reuse_methods.svg") == script["drawn"]()
    assert {panel.name for panel in script["PANELS"]} <= set(registry.names("method"))


def test_every_data_set_and_metric_is_described(root):
    page = text(root, "docs/data-sets.md")
    for name in registry.names("dataset") + registry.names("metric"):
        assert f"`{name}`" in page, name


def test_every_promise_names_a_test_that_exists(root):
    page = text(root, "docs/reliability.md")
    promises = re.findall(r"^- .*(?:\n  .*)*", page, re.MULTILINE)
    assert len(promises) >= 40
    assert all(re.search(r"\.py::test_", promise) for promise in promises)
    for file, test in re.findall(r"`([\w/]+\.py)::(test_\w+)`", page):
        assert re.search(
            rf"^def {test}\(", (root / file).read_text(encoding="utf-8"), re.MULTILINE
        ), test


def test_every_promise_of_security_names_tests_that_exist(root):
    rows = re.findall(r"^\| .* \| (`tests/.*) \|$", text(root, "SECURITY.md"), re.MULTILINE)
    assert len(rows) >= 8
    for path in re.findall(r"`([^`]+)`", " ".join(rows)):
        assert "def test_" in (root / path).read_text(encoding="utf-8"), path


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_or_a_heading(root, page):
    content = re.sub(r"`[^`\n]+`", "", text(root, page))
    for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", content):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = (root / page).parent / path if path else root / page
        assert target.exists(), link
        assert not heading or heading in headings(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES)
def test_every_named_source_file_exists(root, page):
    content = text(root, page)
    made_by_examples = set(re.findall(r"^(?:#|\.\.) (\S+/\S+)$", content, re.MULTILINE))
    prose = re.sub(r"^```.*?^```$", "", content, flags=re.MULTILINE | re.DOTALL)
    named = set(
        re.findall(r"(?<![\w./:<>{}-])[\w-]+/[\w./-]*\.(?:py|smk|yaml|json|csv|def|proto)\b", prose)
    )
    for path in named - made_by_examples:
        places = (root / path, root / "src/ragauge" / path, (root / page).parent / path)
        assert path.startswith("results/") or any(place.exists() for place in places), path


def test_every_named_module_exists(root):
    pages = "\n".join(text(root, page) for page in PAGES)
    for name in set(re.findall(r"`(?:python -m )?(ragauge(?:\.\w+){2,})`", pages)):
        if name != "ragauge.pipelines.retrieval.v1.Retrieval":  # the service's name on the wire
            assert pkgutil.resolve_name(name)


def test_the_index_leads_to_every_page(root):
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text(root, "docs/README.md")))
    assert linked == {page.name for page in (root / "docs").glob("*.md")} - {"README.md"}


def headings(content):
    """The anchors of a page's headings."""
    return {
        re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", content, re.M)
    }
